package kornel

import (
	"fmt"
	"testing"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

// BenchmarkMirror measures what one event costs while applications with four allocations each are known: the figures of a
// line do not grow from 1,000 applications to 16,000.
//
//	go test -run '^$' -bench Mirror ./kornel
func BenchmarkMirror(b *testing.B) {
	for _, event := range []struct {
		name string
		do   func(*Mirror)
	}{
		{"application", func(m *Mirror) {
			m.NoteApplications(addApps("new"))
			m.TakeApplications(&si.ApplicationResponse{Accepted: []*si.AcceptedApplication{{ApplicationID: "new"}}}, false)
			m.NoteApplications(&si.ApplicationRequest{Remove: []*si.RemoveApplicationRequest{{ApplicationID: "new"}}})
		}},
		{"added-twice", func(m *Mirror) {
			m.NoteApplications(addApps("new"))
			m.NoteApplications(addApps("new"))
			m.NoteAllocations(asks("new", "task"))
			for range 2 {
				m.TakeApplications(&si.ApplicationResponse{Updated: []*si.UpdatedApplication{{ApplicationID: "new", State: "Completed"}}}, false)
			}
		}},
		{"refused", func(m *Mirror) {
			m.TakeApplications(&si.ApplicationResponse{Rejected: []*si.RejectedApplication{{ApplicationID: "app-0"}}}, true)
		}},
		{"task", func(m *Mirror) {
			m.NoteAllocations(asks("app-0", "task"))
			m.TakeAllocations(newOf(placed("task", "app-0", "n")), false)
			m.TakeAllocations(released("task", si.TerminationType_PREEMPTED_BY_SCHEDULER), false)
			m.NoteAllocations(releases(ReleaseOf("app-0", "task", si.TerminationType_PREEMPTED_BY_SCHEDULER)))
		}},
		{"all-of-one", func(m *Mirror) {
			m.NoteAllocations(asks("other", "task"))
			m.NoteAllocations(releases(ReleaseOf("other", "", si.TerminationType_STOPPED_BY_RM)))
		}},
		{"node", func(m *Mirror) {
			m.NoteNodes(node("new"))
			m.NoteNodes(&si.NodeInfo{NodeID: "new", Action: si.NodeInfo_DECOMISSION})
		}},
		{"size", func(m *Mirror) { m.Size() }},
	} {
		for _, applications := range []int{1_000, 4_000, 16_000} {
			b.Run(fmt.Sprintf("%s/%d", event.name, applications), func(b *testing.B) {
				mirror := fillLarge(applications)
				b.ReportAllocs()
				for b.Loop() {
					event.do(mirror)
				}
			})
		}
	}
}

// fillLarge returns a mirror of applications with three placed tasks and a pending one each.
func fillLarge(applications int) *Mirror {
	mirror := NewMirror()
	mirror.NoteNodes(node("n"))
	for at := range applications {
		id := fmt.Sprintf("app-%d", at)
		mirror.NoteApplications(addApps(id))
		mirror.TakeApplications(&si.ApplicationResponse{Accepted: []*si.AcceptedApplication{{ApplicationID: id}}}, false)
		for task := range 4 {
			key := fmt.Sprintf("%s-%d", id, task)
			mirror.NoteAllocations(asks(id, key))
			if task < 3 {
				mirror.TakeAllocations(newOf(placed(key, id, "n")), false)
			}
		}
	}
	return mirror
}
