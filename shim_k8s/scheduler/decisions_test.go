package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornel"
	"kornel.internal/clients/go/kornelv1"
)

// A picky shim gives up a message at the first allocation that it cannot take over, as the real one does.
type picky struct{ *standIn }

func (p picky) UpdateAllocation(response *si.AllocationResponse) error {
	for _, each := range response.GetNew() {
		if each.GetAllocationKey() == "bad" {
			return errors.New("AssumePodError")
		}
		_ = p.standIn.UpdateAllocation(&si.AllocationResponse{New: []*si.Allocation{each}})
	}
	return p.standIn.UpdateAllocation(&si.AllocationResponse{Released: response.GetReleased()})
}

func TestAnAllocationThatTheShimCannotTakeOverDoesNotTakeOthersAlong(t *testing.T) {
	shim := newStandIn()
	taker := &decisions{
		callback: picky{shim}, dependents: newDependents(), unconfirmed: &unconfirmed{}, counts: &counts{},
		acknowledge: func(...*kornelv1.PlacementKey) {},
		logger:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, update := range kornel.AllocationUpdates(&si.AllocationResponse{
		New:      []*si.Allocation{{AllocationKey: "a", NodeID: "n1"}, {AllocationKey: "bad", NodeID: "n1"}, {AllocationKey: "b", NodeID: "n1"}},
		Released: []*si.AllocationRelease{{AllocationKey: "c"}},
	}) {
		taker.receive(update)
	}
	if !slices.Equal(shim.heard, []string{"a on n1", "b on n1", "c released"}) {
		t.Fatalf("heard %v", shim.heard)
	}
}

func TestReleasesAreKnownUntilTheyAreConfirmed(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	must(t, remote.UpdateNode(node("n1")))
	shim.waitFor(t, "node n1")
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "application a")
	must(t, remote.UpdateAllocation(ask("pod")))
	shim.waitFor(t, "pod on n1")
	core.DemandRelease("pod", si.TerminationType_PREEMPTED_BY_SCHEDULER)
	shim.waitFor(t, "pod released")
	waiting := remote.Unconfirmed()
	if len(waiting) != 1 {
		t.Fatalf("unconfirmed: %v", waiting)
	}
	remote.Repeat(waiting[0])
	shim.mu.Lock()
	times := 0
	for _, entry := range shim.heard {
		if entry == "pod released" {
			times++
		}
	}
	shim.mu.Unlock()
	if times != 2 {
		t.Fatalf("told %d times", times)
	}
	confirmed := kornel.ReleaseOf("a", "pod", si.TerminationType_PREEMPTED_BY_SCHEDULER)
	must(t, remote.UpdateAllocation(&si.AllocationRequest{
		Releases: &si.AllocationReleasesRequest{AllocationsToRelease: []*si.AllocationRelease{confirmed}},
	}))
	if waiting := remote.Unconfirmed(); len(waiting) != 0 {
		t.Fatalf("unconfirmed: %v", waiting)
	}
}

func TestACoreThatForgotAReleaseDoesNotWaitForIt(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	remote.unconfirmed.note(kornel.ReleaseOf("a", "pod", si.TerminationType_TIMEOUT))
	core.Restart()
	for limit := time.Now().Add(deadline); len(remote.Unconfirmed()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("unconfirmed: %v", remote.Unconfirmed())
		}
	}
}

// slowStates holds up the first scheduling state, as a slow API server does.
type slowStates struct {
	*standIn
	entered, release chan struct{}
}

func (s slowStates) UpdateContainerSchedulingState(request *si.UpdateContainerSchedulingStateRequest) {
	if request.GetState() == si.UpdateContainerSchedulingStateRequest_SKIPPED {
		close(s.entered)
		<-s.release
	}
	s.standIn.UpdateContainerSchedulingState(request)
}

func TestAReasonDoesNotHideThatMoreNodesWouldHelp(t *testing.T) {
	shim := slowStates{newStandIn(), make(chan struct{}), make(chan struct{})}
	var last string
	tell := func(state *si.UpdateContainerSchedulingStateRequest) {
		last = state.GetReason()
		shim.UpdateContainerSchedulingState(state)
	}
	callbacks := (&answers{callback: shim, tell: tell, counts: &counts{}}).callbacks()
	events := func(key, text string) {
		callbacks.Events(context.Background(), []*si.EventRecord{
			{Type: si.EventRecord_APP, ObjectID: "app", Message: "nobody's"},
			{Type: si.EventRecord_REQUEST, ReferenceID: "app", ObjectID: key, Message: text},
		})
	}
	events("a", "no slot")
	<-shim.entered
	callbacks.SchedulingState(context.Background(), &si.UpdateContainerSchedulingStateRequest{
		AllocationKey: "b", State: si.UpdateContainerSchedulingStateRequest_FAILED, Reason: "no room",
	})
	events("b", "refused")
	close(shim.release)
	shim.waitFor(t, "a SKIPPED", "b FAILED")
	if last != "refused" {
		t.Fatalf("told %q last", last)
	}
}

func TestTheLastStateOfAPodIsToldLast(t *testing.T) {
	shim := slowStates{newStandIn(), make(chan struct{}), make(chan struct{})}
	callbacks := (&answers{callback: shim, tell: shim.UpdateContainerSchedulingState, counts: &counts{}}).callbacks()
	tell := func(state si.UpdateContainerSchedulingStateRequest_SchedulingState) {
		callbacks.SchedulingState(context.Background(), &si.UpdateContainerSchedulingStateRequest{AllocationKey: "a", State: state})
	}
	tell(si.UpdateContainerSchedulingStateRequest_SKIPPED)
	<-shim.entered
	tell(si.UpdateContainerSchedulingStateRequest_FAILED)
	time.Sleep(50 * time.Millisecond)
	close(shim.release)
	shim.waitFor(t, "a SKIPPED", "a FAILED")
	if !slices.Equal(shim.heard, []string{"a SKIPPED", "a FAILED"}) {
		t.Fatalf("heard %v", shim.heard)
	}
}
