package kornel

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/common"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

func placed(key, application, node string) *si.Allocation {
	return &si.Allocation{AllocationKey: key, ApplicationID: application, NodeID: node}
}

func newOf(each ...*si.Allocation) *si.AllocationResponse { return &si.AllocationResponse{New: each} }

func released(key string, termination si.TerminationType) *si.AllocationResponse {
	return &si.AllocationResponse{Released: []*si.AllocationRelease{ReleaseOf("a", key, termination)}}
}

func keys(allocations []*si.Allocation) []string {
	var found []string
	for _, each := range allocations {
		found = append(found, each.GetAllocationKey()+"@"+each.GetNodeID())
	}
	return found
}

// fill returns a mirror of a node, an application, two placed tasks and a pending one.
func fill() *Mirror {
	mirror := NewMirror()
	mirror.NoteNodes(node("n"))
	mirror.NoteApplications(addApps("a"))
	mirror.NoteAllocations(asks("a", "1", "2", "3"))
	mirror.TakeNodes(&si.NodeResponse{Accepted: []*si.AcceptedNode{{NodeID: "n"}}}, false)
	mirror.TakeApplications(&si.ApplicationResponse{Accepted: []*si.AcceptedApplication{{ApplicationID: "a"}}}, false)
	mirror.TakeAllocations(newOf(placed("1", "a", "n"), placed("2", "a", "n")), false)
	return mirror
}

func TestMirrorFollowsAllocations(t *testing.T) {
	for _, each := range []struct {
		name   string
		change func(*Mirror)
		placed []string
		asks   []string
	}{
		{"nothing", func(*Mirror) {}, []string{"1@n", "2@n"}, []string{"3@"}},
		{"a release of the shim", func(m *Mirror) {
			m.NoteAllocations(releases(ReleaseOf("a", "1", si.TerminationType_STOPPED_BY_RM)))
		}, []string{"2@n"}, []string{"3@"}},
		{"a withdrawn ask", func(m *Mirror) {
			m.NoteAllocations(releases(ReleaseOf("a", "3", si.TerminationType_STOPPED_BY_RM)))
		}, []string{"1@n", "2@n"}, nil},
		{"a release of all of the application", func(m *Mirror) {
			m.NoteAllocations(releases(ReleaseOf("a", "", si.TerminationType_STOPPED_BY_RM)))
		}, nil, nil},
		{"a container that could not be started", func(m *Mirror) {
			m.NoteAllocations(releases(ReleaseOf("a", "1", schedulingFailedOnRM)))
		}, []string{"2@n"}, []string{"1@", "3@"}},
		{"a release by the core", func(m *Mirror) {
			m.TakeAllocations(released("1", si.TerminationType_STOPPED_BY_RM), false)
		}, []string{"2@n"}, []string{"3@"}},
		// Its container runs until the shim confirms.
		{"a victim", func(m *Mirror) {
			m.TakeAllocations(released("1", si.TerminationType_PREEMPTED_BY_SCHEDULER), false)
		}, []string{"1@n", "2@n"}, []string{"3@"}},
		{"a victim that is confirmed", func(m *Mirror) {
			m.TakeAllocations(released("1", si.TerminationType_PREEMPTED_BY_SCHEDULER), false)
			m.NoteAllocations(releases(ReleaseOf("a", "1", si.TerminationType_PREEMPTED_BY_SCHEDULER)))
		}, []string{"2@n"}, []string{"3@"}},
		{"a placeholder that timed out before it was placed", func(m *Mirror) {
			m.TakeAllocations(released("3", si.TerminationType_TIMEOUT), false)
		}, []string{"1@n", "2@n"}, nil},
		{"a rejected ask", func(m *Mirror) {
			m.TakeAllocations(&si.AllocationResponse{RejectedAllocations: []*si.RejectedAllocation{{AllocationKey: "3"}}}, false)
		}, []string{"1@n", "2@n"}, nil},
		{"a resize", func(m *Mirror) {
			m.NoteAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{placed("1", "a", "n")}})
		}, []string{"1@n", "2@n"}, []string{"3@"}},
		{"an application that was removed", func(m *Mirror) {
			m.NoteApplications(&si.ApplicationRequest{Remove: []*si.RemoveApplicationRequest{{ApplicationID: "a"}}})
		}, nil, nil},
		{"an application that has ended", func(m *Mirror) {
			m.TakeApplications(&si.ApplicationResponse{Updated: []*si.UpdatedApplication{{ApplicationID: "a", State: "Failed"}}}, false)
		}, nil, nil},
		{"an application that is failing", func(m *Mirror) {
			m.TakeApplications(&si.ApplicationResponse{Updated: []*si.UpdatedApplication{{ApplicationID: "a", State: "Failing"}}}, false)
		}, []string{"1@n", "2@n"}, []string{"3@"}},
	} {
		t.Run(each.name, func(t *testing.T) {
			mirror := fill()
			each.change(mirror)
			replay := mirror.Replay()
			if got := keys(replay.Placed); !slices.Equal(got, each.placed) {
				t.Errorf("placed: %v", got)
			}
			if got := keys(replay.Asks); !slices.Equal(got, each.asks) {
				t.Errorf("asks: %v", got)
			}
		})
	}
}

func TestMirrorRemembersDevices(t *testing.T) {
	mirror := fill()
	mirror.NoteNodes(&si.NodeInfo{NodeID: "n", Action: si.NodeInfo_UPDATE, Attributes: map[string]string{
		AttributeDevices: DevicesAttribute([]Device{{ID: "7"}}), common.NodePartition: "other",
	}})
	mirror.NoteAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{
		Ask{Key: "whole", ApplicationID: "a", Devices: &Devices{Count: 1}}.Allocation(),
		Ask{Key: "part", ApplicationID: "a", Devices: &Devices{Fraction: 0.5}}.Allocation(),
		Ask{Key: "failed", ApplicationID: "a", Devices: &Devices{Count: 1}}.Allocation(),
	}})
	for key, wants := range map[string]map[string]string{
		"whole":  {TagGPUDevices: "7", TagGPUCount: "1"},
		"part":   {TagGPUDevices: "8", TagGPUFraction: "0.5"},
		"failed": {TagGPUDevices: "9", TagGPUCount: "1"},
		// A real ask that wants no devices itself gets those of its placeholder.
		"3": {TagGPUDevices: "6", TagGPUCount: "1"},
	} {
		announced := placed(key, "a", "n")
		announced.AllocationTags = wants
		mirror.TakeAllocations(newOf(announced), false)
	}
	// What the shim says once more has no devices of its own.
	mirror.NoteAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{placed("3", "a", "n")}})
	mirror.NoteAllocations(releases(ReleaseOf("a", "failed", schedulingFailedOnRM)))
	replay := mirror.Replay()
	held := map[string]string{}
	for _, each := range replay.Placed {
		if devices := each.GetAllocationTags()[TagGPUDevices]; devices != "" {
			held[each.GetAllocationKey()] = devices + " " + each.GetAllocationTags()[TagGPUCount] + each.GetAllocationTags()[TagGPUFraction]
		}
	}
	if want := map[string]string{"whole": "7 1", "part": "8 0.5", "3": "6 1"}; !maps.Equal(held, want) {
		t.Errorf("placed with %v, want %v", held, want)
	}
	for _, each := range replay.Asks {
		if devices := each.GetAllocationTags()[TagGPUDevices]; devices != "" {
			t.Errorf("%s is asked for with devices %s", each.GetAllocationKey(), devices)
		}
	}
	if got := replay.Nodes[0].GetAttributes(); got[AttributeDevices] != `[{"id":"7"}]` || got[common.NodePartition] != "" {
		t.Errorf("the node is told with %v", got)
	}
}

func TestMirrorFollowsNodes(t *testing.T) {
	mirror := fill()
	larger := &si.NodeInfo{NodeID: "n", Action: si.NodeInfo_UPDATE, SchedulableResource: Amounts{"vcore": 9}.Resource()}
	mirror.NoteNodes(larger, &si.NodeInfo{NodeID: "n", Action: si.NodeInfo_DRAIN_NODE})
	replay := mirror.Replay()
	if len(replay.Nodes) != 1 || len(replay.Open) != 0 {
		t.Fatalf("%v %v", replay.Nodes, replay.Open)
	}
	if got := replay.Nodes[0]; got.GetAction() != si.NodeInfo_CREATE_DRAIN || got.GetSchedulableResource().GetResources()["vcore"].GetValue() != 9 {
		t.Fatalf("%v", got)
	}
	mirror.NoteNodes(&si.NodeInfo{NodeID: "n", Action: si.NodeInfo_DECOMISSION})
	replay = mirror.Replay()
	// Allocations on that node cannot be reported, and the core that knew them has lost its state, so the shim must be
	// informed.
	var lost []string
	for _, each := range replay.Lost {
		lost = append(lost, each.GetAllocationKey())
	}
	if len(replay.Nodes)+len(replay.Placed) != 0 || !slices.Equal(lost, []string{"1", "2"}) {
		t.Fatalf("%v %v %v", replay.Nodes, replay.Placed, lost)
	}
	if again := mirror.Replay(); len(again.Lost) != 0 {
		t.Fatalf("lost twice: %v", again.Lost)
	}
}

func TestOnlyNewsIsPassedOn(t *testing.T) {
	mirror := fill()
	if news, _ := mirror.TakeAllocations(newOf(placed("1", "a", "n"), placed("3", "a", "n")), true); !slices.Equal(keys(news.GetNew()), []string{"3@n"}) {
		t.Fatalf("passed on: %v", news)
	}
	if news, _ := mirror.TakeNodes(&si.NodeResponse{Accepted: []*si.AcceptedNode{{NodeID: "n"}}}, true); news != nil {
		t.Fatalf("passed on: %v", news)
	}
	// A second application of the same name is refused, and the first one stays.
	again := &si.ApplicationResponse{Rejected: []*si.RejectedApplication{{ApplicationID: "a", Reason: "application-exists"}}}
	if news, _ := mirror.TakeApplications(again, false); len(news.GetRejected()) != 1 || mirror.Size().Applications != 1 {
		t.Fatalf("passed on: %v", news)
	}
}

func TestApplicationWithContainersIsForcedIntoACoreThatForgotIt(t *testing.T) {
	mirror := fill()
	mirror.NoteApplications(addApps("idle"))
	replay := mirror.Replay()
	if got := replay.Applications[0].GetTags()["application.create.force"]; got != "true" {
		t.Fatalf("a: %q", got)
	}
	if got := replay.Applications[1].GetTags(); len(got) != 0 {
		t.Fatalf("idle: %v", got)
	}
}

func TestApplicationThatComesBackWhileItsEndIsUnderWayIsANewOne(t *testing.T) {
	ended := &si.ApplicationResponse{Updated: []*si.UpdatedApplication{{ApplicationID: "a", State: "Completed"}}}
	accepted := &si.ApplicationResponse{Accepted: []*si.AcceptedApplication{{ApplicationID: "a"}}}
	rejected := &si.ApplicationResponse{Rejected: []*si.RejectedApplication{{ApplicationID: "a"}}}
	comeBack := func() *Mirror {
		mirror := fill()
		mirror.NoteApplications(addApps("a"))
		mirror.NoteAllocations(asks("a", "later"))
		return mirror
	}

	mirror := comeBack()
	mirror.TakeApplications(ended, false)
	if news, _ := mirror.TakeApplications(accepted, false); len(news.GetAccepted()) != 1 {
		t.Fatalf("the shim is not told that it was accepted: %v", news)
	}
	replay := mirror.Replay()
	if found := keys(replay.Asks); len(replay.Applications) != 1 || !slices.Equal(found, []string{"later@"}) || len(replay.Placed) != 0 {
		t.Fatalf("remembered: %v", replay)
	}

	// A core in which the first application has not ended refuses the second one, and the first one stays.
	mirror = comeBack()
	if news, _ := mirror.TakeApplications(rejected, false); len(news.GetRejected()) != 1 {
		t.Fatalf("not told: %v", news)
	}
	mirror.TakeApplications(ended, false)
	if size := mirror.Size(); size.Applications != 0 || size.Asks != 0 {
		t.Fatalf("remembered: %v", size)
	}

	// A core that has lost its state answers once, and the answer is for the second application.
	mirror = comeBack()
	if replay := mirror.Replay(); len(replay.Applications) != 1 {
		t.Fatalf("told %d times", len(replay.Applications))
	}
	if news, _ := mirror.TakeApplications(accepted, true); len(news.GetAccepted()) != 1 {
		t.Fatalf("the shim is not told that it was accepted: %v", news)
	}
}

// TestCountsOfTheMirrorAgreeWithWhatItHolds does random things to a mirror, and counts again what it holds after each.
func TestCountsOfTheMirrorAgreeWithWhatItHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	mirror := NewMirror()
	mirror.NoteNodes(node("n"), node("m"))
	for range 20_000 {
		application, key := pick("a", "b", "c"), pick("1", "2", "3", "4", "5")
		switch random.IntN(9) {
		case 0:
			mirror.NoteApplications(addApps(application))
		case 1:
			mirror.NoteAllocations(asks(application, key))
		case 2:
			mirror.NoteAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{placed(key, application, "n")}})
		case 3:
			mirror.TakeAllocations(newOf(placed(key, application, pick("n", "m"))), random.IntN(2) == 0)
		case 4:
			mirror.NoteAllocations(releases(ReleaseOf(application, key, si.TerminationType(random.IntN(6)))))
		case 5:
			mirror.TakeAllocations(released(key, si.TerminationType(random.IntN(5))), false)
		case 6:
			refused := []*si.RejectedApplication{{ApplicationID: application}}
			mirror.TakeApplications(&si.ApplicationResponse{Rejected: refused}, random.IntN(2) == 0)
		case 7:
			ended := []*si.UpdatedApplication{{ApplicationID: application, State: "Completed"}}
			mirror.TakeApplications(&si.ApplicationResponse{Updated: ended}, false)
		case 8:
			if random.IntN(3) == 0 {
				mirror.NoteAllocations(releases(ReleaseOf(application, "", si.TerminationType_STOPPED_BY_RM)))
			} else {
				mirror.TakeAllocations(&si.AllocationResponse{RejectedAllocations: []*si.RejectedAllocation{{AllocationKey: key}}}, false)
			}
		}
		held, runs := MirrorSize{Nodes: 2, Applications: len(mirror.applications)}, map[string]bool{}
		for _, each := range mirror.allocations {
			if each.node == "" {
				held.Asks++
			} else {
				held.Allocations++
				runs[each.allocation.GetApplicationID()] = true
			}
		}
		if size := mirror.Size(); size != held {
			t.Fatalf("says %v, holds %v", size, held)
		}
		for _, each := range []string{"a", "b", "c"} {
			if mirror.runsSomething(each) != runs[each] {
				t.Fatalf("something of %s runs: %v", each, runs[each])
			}
		}
	}
	for _, application := range []string{"a", "b", "c"} {
		mirror.forgetApplication(application)
	}
	if size := mirror.Size(); size != (MirrorSize{Nodes: 2}) || len(mirror.books) != 0 {
		t.Fatalf("holds %v and %d books", size, len(mirror.books))
	}
}
