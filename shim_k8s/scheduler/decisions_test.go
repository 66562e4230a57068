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

	"kornel/clients/go/kornelv1"
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
	taker := &decisions{callback: picky{shim}, turns: NewTurns(time.Second), counts: &counts{}, logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	taker.ReceiveAllocations(&si.AllocationResponse{
		New:      []*si.Allocation{{AllocationKey: "a", NodeID: "n1"}, {AllocationKey: "bad", NodeID: "n1"}, {AllocationKey: "b", NodeID: "n1"}},
		Released: []*si.AllocationRelease{{AllocationKey: "c"}},
	})
	if !slices.Equal(shim.heard, []string{"a on n1", "b on n1", "c released"}) {
		t.Fatalf("heard %v", shim.heard)
	}
}

func TestAPredicateThatPanicsGivesTheTurnOn(t *testing.T) {
	shim := newStandIn()
	shim.refuse = func(string, string) error { panic("no such pod") }
	asked := &answers{callback: shim, turns: NewTurns(time.Second), depends: func(string, string) bool { return true }, counts: &counts{}}
	question := &kornelv1.PredicatesQuestion{AllocationKey: "a", NodeIds: []string{"n1"}, Allocate: true}
	func() {
		defer func() { _ = recover() }()
		asked.predicates(context.Background(), question)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if asked.turns.Begin(ctx, "b") != nil {
		t.Fatal("nobody is judged any more")
	}
}

// A slow API server holds the first state up.
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

func TestTheLastStateOfAPodIsToldLast(t *testing.T) {
	shim := slowStates{newStandIn(), make(chan struct{}), make(chan struct{})}
	callbacks := (&answers{callback: shim, turns: NewTurns(time.Second), counts: &counts{}}).callbacks()
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
