package kornel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornelv1"
)

func attach(t *testing.T, callbacks Callbacks) (*fakecore.Core, *Session) {
	t.Helper()
	return attachTo(t, fakecore.New(), callbacks)
}

func attachTo(t *testing.T, fake *fakecore.Core, callbacks Callbacks) (*fakecore.Core, *Session) {
	t.Helper()
	core := serveCore(t, fake)
	session := register(t, connect(t, core, Options{}))
	if err := session.AttachCallbacks(withDeadline(t), callbacks); err != nil {
		t.Fatal(err)
	}
	return core, session
}

func predicates(keys ...string) *kornelv1.AttachResponse {
	message := &kornelv1.AttachResponse{}
	for _, key := range keys {
		message.Predicates = append(message.Predicates, &kornelv1.PredicatesQuestion{AllocationKey: key, NodeIds: []string{"n1", "n2"}})
	}
	return message
}

func receiveAnswer(t *testing.T, answer <-chan *kornelv1.AttachRequest) *kornelv1.AttachRequest {
	t.Helper()
	select {
	case found := <-answer:
		return found
	case <-time.After(deadline):
		t.Fatal("no answer")
		return nil
	}
}

func TestQuestionsAreAnsweredConcurrently(t *testing.T) {
	const questions = 200
	var all sync.WaitGroup
	all.Add(questions)
	// Every answer waits until all questions have been asked.
	core, _ := attach(t, Callbacks{
		Timeout: deadline,
		Predicates: func(_ context.Context, question *kornelv1.PredicatesQuestion) Judgement {
			all.Done()
			all.Wait()
			return Judgement{Refusals: map[string]string{"n2": "not for " + question.GetAllocationKey()}}
		},
	})
	var keys []string
	for n := range questions {
		keys = append(keys, fmt.Sprint(n))
	}
	for n, answer := range core.Ask(predicates(keys...)) {
		refusals := receiveAnswer(t, answer).GetPredicates()[0].GetRefusals()
		if len(refusals) != 1 || refusals[0].GetNodeId() != "n2" || refusals[0].GetReason() != "not for "+keys[n] {
			t.Fatalf("answer %d: %v", n, refusals)
		}
	}
}

func TestFunctionThatPanicsRefuses(t *testing.T) {
	core, _ := attach(t, Callbacks{
		Timeout:    deadline,
		Predicates: func(context.Context, *kornelv1.PredicatesQuestion) Judgement { panic("broken") },
		PreemptionPredicates: func(context.Context, *kornelv1.PreemptionPredicatesQuestion) *si.PreemptionPredicatesResponse {
			panic("broken")
		},
		StateDump: func(context.Context) (string, error) { return "", errors.New("too busy") },
	})
	message := predicates("k")
	message.PreemptionPredicates = []*kornelv1.PreemptionPredicatesQuestion{{}}
	message.StateDump = &kornelv1.StateDumpQuestion{}
	answers := core.Ask(message)
	refusals := receiveAnswer(t, answers[0]).GetPredicates()[0].GetRefusals()
	if len(refusals) != 2 || refusals[0].GetReason() != "callback failed: broken" {
		t.Fatalf("predicates: %v", refusals)
	}
	if response := receiveAnswer(t, answers[1]).GetPreemptionPredicates()[0].GetResponse(); response.GetSuccess() {
		t.Fatalf("preemption predicates: %v", response)
	}
	if dump := receiveAnswer(t, answers[2]).GetStateDump(); dump.GetError() != "too busy" || dump.GetJson() != "" {
		t.Fatalf("dump: %v", dump)
	}
}

func TestQuestionIsGivenUpWhenTheCoreStopsWaiting(t *testing.T) {
	over := make(chan error, 1)
	core, _ := attach(t, Callbacks{
		Timeout: 50 * time.Millisecond,
		Predicates: func(ctx context.Context, question *kornelv1.PredicatesQuestion) Judgement {
			if question.GetAllocationKey() == "slow" {
				<-ctx.Done()
				over <- ctx.Err()
			}
			return Judgement{}
		},
	})
	slow := core.Ask(predicates("slow"))[0]
	if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("given up with %v", err)
	}
	// Answers keep their order, so an answer to the slow question would have come before this one.
	receiveAnswer(t, core.Ask(predicates("quick"))[0])
	select {
	case answer := <-slow:
		t.Fatalf("answered late: %v", answer)
	default:
	}
}

func TestCallbacksAreAttachedAgainAfterABreak(t *testing.T) {
	core, _ := attach(t, Callbacks{
		Timeout:    deadline,
		Predicates: func(context.Context, *kornelv1.PredicatesQuestion) Judgement { return Judgement{} },
	})
	core.Stop()
	core.Serve()
	if !core.Await(func(log []string) bool { return count(log, "attach rm-1") == 2 }) {
		t.Fatalf("not attached again: %v", core.Log())
	}
	receiveAnswer(t, core.Ask(predicates("k"))[0])
}

func TestNoticesComeInOrder(t *testing.T) {
	told := make(chan string, 10)
	core, _ := attach(t, Callbacks{
		SchedulingState: func(_ context.Context, state *si.UpdateContainerSchedulingStateRequest) {
			told <- state.GetAllocationKey()
		},
		Events: func(_ context.Context, events []*si.EventRecord) {
			for _, event := range events {
				told <- event.GetMessage()
			}
		},
	})
	for _, key := range []string{"1", "2", "3"} {
		core.Tell(&kornelv1.AttachResponse{SchedulingStates: []*si.UpdateContainerSchedulingStateRequest{{AllocationKey: key}}})
	}
	core.Tell(&kornelv1.AttachResponse{Events: []*si.EventRecord{{Message: "4"}, {Message: "5"}}})
	for _, wanted := range []string{"1", "2", "3", "4", "5"} {
		select {
		case got := <-told:
			if got != wanted {
				t.Fatalf("%s instead of %s", got, wanted)
			}
		case <-time.After(deadline):
			t.Fatal("nothing was told")
		}
	}
}

func TestCoreWithoutCallbacksLeavesTheSessionAlone(t *testing.T) {
	core := fakecore.New()
	core.WithoutCallbacks = true
	session := register(t, connect(t, serveCore(t, core), Options{}))
	callbacks := Callbacks{Predicates: func(context.Context, *kornelv1.PredicatesQuestion) Judgement { return Judgement{} }}
	if err := session.AttachCallbacks(withDeadline(t), callbacks); !errors.Is(err, ErrNotSupported) {
		t.Fatalf("attached to nothing: %v", err)
	}
	if answers, err := session.CreateNodes(withDeadline(t), node("n")); err != nil || len(answers) != 1 {
		t.Fatalf("%v %v", answers, err)
	}
}

func TestEndOfTheCallbacksIsTheEndOfTheSession(t *testing.T) {
	core, session := attach(t, Callbacks{Events: func(context.Context, []*si.EventRecord) {}})
	core.EndCallbacks(status.Error(codes.FailedPrecondition, "resync-required"))
	waitDone(t, session.Done())
	if !errors.Is(session.Err(), ErrResyncRequired) {
		t.Fatalf("ended with %v", session.Err())
	}
}

func TestPlacementsAreAcknowledged(t *testing.T) {
	core, session := attach(t, Callbacks{
		Timeout: deadline,
		Predicates: func(_ context.Context, question *kornelv1.PredicatesQuestion) Judgement {
			return Judgement{DependsOnPlacements: true, InPlace: question.GetAllocationKey() == "sure"}
		},
	})
	for _, answer := range core.Ask(predicates("waits", "sure")) {
		if found := receiveAnswer(t, answer).GetPredicates()[0]; !found.GetDependsOnPlacements() {
			t.Fatalf("not said to depend: %v", found)
		}
	}
	if !core.WaitFor("acknowledged sure on n1") {
		t.Fatalf("not acknowledged with the answer: %v", core.Log())
	}
	session.Acknowledge(&kornelv1.PlacementKey{AllocationKey: "waits", NodeId: "n2"})
	if !core.WaitFor("acknowledged waits on n2") {
		t.Fatalf("not acknowledged: %v", core.Log())
	}
	expectOrder(t, core.Log(), "acknowledged sure on n1", "acknowledged waits on n2")
}

func TestQuestionIsJudgedOnceThePlacementBeforeItIsInPlace(t *testing.T) {
	fake := fakecore.New()
	fake.NamesPlacements = true
	judged := make(chan string, 2)
	core, session := attachTo(t, fake, Callbacks{
		Timeout: deadline,
		Predicates: func(_ context.Context, question *kornelv1.PredicatesQuestion) Judgement {
			judged <- question.GetAllocationKey()
			return Judgement{}
		},
	})
	next := predicates("second")
	next.GetPredicates()[0].After = &kornelv1.PlacementKey{AllocationKey: "first", NodeId: "n1"}
	waiting := core.Ask(next)[0]
	receiveAnswer(t, core.Ask(predicates("other"))[0])
	if key := <-judged; key != "other" {
		t.Fatalf("judged %s before the placement that it waits for", key)
	}
	session.Acknowledge(&kornelv1.PlacementKey{AllocationKey: "first", NodeId: "n1"})
	receiveAnswer(t, waiting)
	// The placement is in place when the question comes, so it need not wait; and no acknowledgement is sent to a core that
	// names placements.
	session.Acknowledge(&kornelv1.PlacementKey{AllocationKey: "second", NodeId: "n1"})
	next = predicates("third")
	next.GetPredicates()[0].After = &kornelv1.PlacementKey{AllocationKey: "second", NodeId: "n1"}
	receiveAnswer(t, core.Ask(next)[0])
	for _, line := range core.Log() {
		if strings.HasPrefix(line, "acknowledged") {
			t.Fatalf("told in vain: %v", core.Log())
		}
	}
}

func TestWhatWasNotPlacedIsToldBeforeTheNextQuestion(t *testing.T) {
	var mu sync.Mutex
	var undone []string
	core, _ := attach(t, Callbacks{
		Timeout: deadline,
		NotPlaced: func(_, key string) {
			mu.Lock()
			defer mu.Unlock()
			undone = append(undone, key)
		},
		Predicates: func(context.Context, *kornelv1.PredicatesQuestion) Judgement {
			mu.Lock()
			defer mu.Unlock()
			return Judgement{Refusals: map[string]string{"n1": fmt.Sprint(undone)}}
		},
	})
	question := predicates("next")
	question.NotPlaced = []*kornelv1.PlacementKey{{AllocationKey: "before"}}
	answer := receiveAnswer(t, core.Ask(question)[0]).GetPredicates()[0]
	if reason := answer.GetRefusals()[0].GetReason(); reason != "[before]" {
		t.Fatalf("the question was answered knowing %s", reason)
	}
}
