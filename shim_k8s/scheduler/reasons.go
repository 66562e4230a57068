package scheduler

import "strings"

// ShowReason returns the core's reason for a rejection so that the pod shows all of it. The shim shows what stands before the
// first colon, which for the core's "no-queue: queue 'root.a': ..." would be the token alone; so the sentence comes first,
// without colons, and the token last.
func ShowReason(reason string) string {
	token, sentence, found := strings.Cut(reason, ": ")
	if !found || strings.ContainsAny(token, " :") {
		token, sentence = "", reason
	}
	sentence = strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(sentence, ": ", ", "), ":", " "))
	if token == "" {
		return sentence
	}
	return sentence + " (" + token + ")"
}
