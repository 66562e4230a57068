package kornel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornelv1"
)

// A recorder writes down what it receives.
type recorder struct {
	mu      sync.Mutex
	heard   []string
	changed chan struct{}
	busy    bool
	overlap bool
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) receive(update Update) {
	r.mu.Lock()
	r.overlap = r.overlap || r.busy
	r.busy = true
	r.mu.Unlock()
	time.Sleep(time.Microsecond) // a window in which another call would be seen
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	switch update := update.(type) {
	case NodeAccepted:
		r.heard = append(r.heard, "node "+update.NodeID)
	case NodeRejected:
		r.heard = append(r.heard, "no node "+update.NodeID)
	case ApplicationAccepted:
		r.heard = append(r.heard, "application "+update.ApplicationID)
	case ApplicationRejected:
		r.heard = append(r.heard, "no application "+update.ApplicationID)
	case ApplicationUpdated:
		r.heard = append(r.heard, update.ApplicationID+" "+update.State)
	case Allocated:
		r.heard = append(r.heard, update.Key+" on "+update.NodeID)
	case Released:
		r.heard = append(r.heard, fmt.Sprintf("%s released %s", update.Key, update.Termination))
	case AskRejected:
		r.heard = append(r.heard, "no "+update.Key)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

func (r *recorder) waitFor(t *testing.T, entries ...string) {
	t.Helper()
	limit := time.After(deadline)
	for {
		r.mu.Lock()
		missing := ""
		for _, entry := range entries {
			if !slices.Contains(r.heard, entry) {
				missing = entry
			}
		}
		changed := r.changed
		r.mu.Unlock()
		if missing == "" {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%q was not heard, only %v", missing, r.all())
		}
	}
}

func startShim(t *testing.T, core *fakecore.Core, options ShimOptions, registration Registration) (*Shim, *recorder) {
	t.Helper()
	heard := newRecorder()
	options.Receive = heard.receive
	shim := NewShim(connect(t, core, Options{}), options)
	if err := shim.Start(withDeadline(t), registration); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shim.Close(withDeadline(t)) })
	return shim, heard
}

func waitLive(t *testing.T, shim *Shim, registrations int) {
	t.Helper()
	limit := time.Now().Add(deadline)
	for status := shim.Status(); !status.Live || status.Registrations < registrations; status = shim.Status() {
		if time.Now().After(limit) {
			t.Fatalf("not live: %+v", status)
		}
		time.Sleep(time.Millisecond)
	}
}

var attached = Callbacks{Predicates: func(context.Context, *kornelv1.PredicatesQuestion) Judgement { return Judgement{} }}

// build reports two nodes, of which one is closed, an application, two placed tasks, a pending one, and a foreign
// allocation.
func build(t *testing.T, core *fakecore.Core, shim *Shim, heard *recorder) {
	t.Helper()
	shim.UpdateNodes(node("n1"), node("n2"))
	heard.waitFor(t, "node n1", "node n2")
	shim.UpdateNodes(&si.NodeInfo{NodeID: "n2", Action: si.NodeInfo_DRAIN_NODE})
	shim.UpdateApplications(addApps("a", "idle"))
	heard.waitFor(t, "application a", "application idle")
	foreign := &si.Allocation{AllocationKey: "f", NodeID: "n1", AllocationTags: map[string]string{"foreign": "default"}}
	shim.UpdateAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{foreign}})
	shim.UpdateAllocations(asks("a", "t1", "t2", "t3"))
	if !core.WaitFor("ask t1", "ask t2", "ask t3") {
		t.Fatal("not asked")
	}
	core.Place("t1", "n1")
	core.Place("t2", "n1")
	heard.waitFor(t, "t1 on n1", "t2 on n1")
}

func TestNothingIsReportedBeforeTheCallbacksAreAttached(t *testing.T) {
	core := serveCore(t, fakecore.New())
	shim, heard := startShim(t, core, ShimOptions{Callbacks: attached}, Registration{})
	shim.UpdateNodes(node("n1"))
	heard.waitFor(t, "node n1")
	expectOrder(t, core.Log(), "register rm-1", "attach rm-1", "node n1 CREATE")
}

func TestCoreThatForgotIsToldEverythingInTheOrderOfRecovery(t *testing.T) {
	for name, lose := range map[string]func(*fakecore.Core){
		"told to":   func(core *fakecore.Core) { core.EndStreams(status.Error(codes.FailedPrecondition, "resync-required")) },
		"restarted": func(core *fakecore.Core) { core.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			core := fakecore.New()
			core.HoldAsks = true
			serveCore(t, core)
			shim, heard := startShim(t, core, ShimOptions{Callbacks: attached}, Registration{})
			build(t, core, shim, heard)
			before := heard.all()

			lose(core)
			waitLive(t, shim, 2)
			if !core.Await(func(log []string) bool {
				return count(log, "ask t3") == 2 && count(log, "node n1 DRAIN_TO_SCHEDULABLE") == 1
			}) {
				t.Fatalf("not told: %v", core.Since("register"))
			}
			log := core.Since("register")
			expectOrder(t, log, "attach rm-1", "node n1 CREATE_DRAIN", "node n2 CREATE_DRAIN", "application a forced", "application idle",
				"foreign f on n1", "allocation t1 on n1", "allocation t2 on n1")
			expectOrder(t, log, "allocation t2 on n1", "ask t3")
			expectOrder(t, log, "allocation t2 on n1", "node n1 DRAIN_TO_SCHEDULABLE")
			if slices.Contains(log, "node n2 DRAIN_TO_SCHEDULABLE") {
				t.Fatal("a closed node was opened")
			}
			// The shim knows this placement already, so it is not delivered again.
			core.Place("t3", "n1")
			heard.waitFor(t, "t3 on n1")
			if news := heard.all()[len(before):]; !slices.Equal(news, []string{"t3 on n1"}) {
				t.Fatalf("heard again: %v", news)
			}
			if heard.overlap {
				t.Fatal("two updates were handed on at once")
			}
		})
	}
}

func TestReportsNeverBlockAndReachACoreThatWasAway(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	serveCore(t, core)
	shim, heard := startShim(t, core, ShimOptions{}, Registration{})
	build(t, core, shim, heard)
	core.Stop()
	const many = 2000
	keys := make([]string, many)
	for n := range keys {
		keys[n] = fmt.Sprintf("later-%d", n)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		shim.UpdateNodes(node("n3"))
		shim.UpdateApplications(addApps("b"))
		for _, key := range keys {
			shim.UpdateAllocations(asks("a", key))
		}
		// An allocation that ends meanwhile is not reported.
		shim.UpdateAllocations(releases(ReleaseOf("a", "t1", si.TerminationType_STOPPED_BY_RM)))
		shim.UpdateApplications(&si.ApplicationRequest{Remove: []*si.RemoveApplicationRequest{{ApplicationID: "idle"}}})
	}()
	waitDone(t, done)
	core.Restart()
	heard.waitFor(t, "node n3", "application b")
	if !core.WaitFor("ask later-0", fmt.Sprintf("ask later-%d", many-1)) {
		t.Fatal("not asked")
	}
	log := core.Since("register")
	if slices.Contains(log, "allocation t1 on n1") || slices.Contains(log, "application idle") {
		t.Fatal("what had ended was reported")
	}
}

func TestWhatIsReportedWhileTheCoreIsBeingToldFollows(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	var shim *Shim
	var late sync.Once
	core.RefuseApplication = func(id string) string {
		if shim != nil && shim.Status().Registrations == 2 {
			// The mirror has been reported only in part.
			late.Do(func() {
				shim.UpdateNodes(node("late"))
				shim.UpdateAllocations(releases(ReleaseOf("a", "t2", si.TerminationType_STOPPED_BY_RM)))
			})
		}
		return ""
	}
	serveCore(t, core)
	running, heard := startShim(t, core, ShimOptions{}, Registration{})
	build(t, core, running, heard)
	shim = running
	core.EndStreams(status.Error(codes.FailedPrecondition, "resync-required"))
	if !core.Await(func(log []string) bool {
		return count(log, "node late CREATE") == 1 && slices.Contains(log, "release t2 STOPPED_BY_RM")
	}) {
		t.Fatalf("lost: %v", core.Since("register"))
	}
	expectOrder(t, core.Since("register"), "allocation t2 on n1", "release t2 STOPPED_BY_RM")
	heard.waitFor(t, "node late", "t2 released STOPPED_BY_RM")
}

func TestSupersededShimEndsWithoutRegisteringAgain(t *testing.T) {
	core := serveCore(t, fakecore.New())
	shim, _ := startShim(t, core, ShimOptions{}, Registration{})
	if !core.WaitFor("bind UpdateNode", "bind UpdateApplication", "bind UpdateAllocation") {
		t.Fatal("not bound")
	}
	core.EndStreams(status.Error(codes.Aborted, "superseded: rm-1 has registered from another session"))
	waitDone(t, shim.Done())
	if !errors.Is(shim.Err(), ErrSuperseded) {
		t.Fatalf("ended with %v", shim.Err())
	}
	if got := count(core.Log(), "register rm-1"); got != 1 {
		t.Fatalf("registered %d times", got)
	}
	shim.UpdateNodes(node("n")) // must not block or panic
}

func refuseBad(config string) error {
	if config == "bad" {
		return status.Error(codes.InvalidArgument, "partitions[0]: bad")
	}
	return nil
}

func TestBadConfigurationIsRefusedAndNotRemembered(t *testing.T) {
	core := fakecore.New()
	core.RefuseConfig = refuseBad
	serveCore(t, core)
	shim, _ := startShim(t, core, ShimOptions{}, Registration{Config: "good"})
	if err := shim.UpdateConfiguration(withDeadline(t), "bad", nil); !isRefusal(err, codes.InvalidArgument) {
		t.Fatalf("a bad configuration: %v", err)
	}
	if err := shim.UpdateConfiguration(withDeadline(t), "better", nil); err != nil {
		t.Fatal(err)
	}
	core.Restart()
	waitLive(t, shim, 2)
	if core.Config() != "better" {
		t.Fatalf("in force is %q", core.Config())
	}
}

func TestConfigurationRefusedAfterTheCoreWasAwayDoesNotKeepItFromBeingUsed(t *testing.T) {
	core := fakecore.New()
	core.RefuseConfig = refuseBad
	serveCore(t, core)
	told := make(chan error, 1)
	shim, heard := startShim(t, core, ShimOptions{ConfigurationRefused: func(err error) { told <- err }}, Registration{Config: "good"})
	shim.UpdateNodes(node("n1"))
	heard.waitFor(t, "node n1")
	core.Stop()
	eventually(t, "the break was not seen", func() bool { return !shim.Status().Live })
	limited, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := shim.UpdateConfiguration(limited, "bad", nil); err != nil {
		t.Fatalf("while the core is away: %v", err)
	}
	core.Restart()
	waitLive(t, shim, 2)
	if core.Config() != "good" {
		t.Fatalf("in force is %q", core.Config())
	}
	if err := <-told; !isRefusal(err, codes.InvalidArgument) {
		t.Fatalf("told %v", err)
	}
	// After the next break the refused configuration is not sent again.
	core.Restart()
	waitLive(t, shim, 3)
	if got := count(core.Log(), "refused bad"); got != 1 {
		t.Fatalf("tried %d times", got)
	}
}

func TestStartReturnsWhatIsWrongWithTheConfiguration(t *testing.T) {
	core := fakecore.New()
	core.RefuseConfig = refuseBad
	serveCore(t, core)
	shim := NewShim(connect(t, core, Options{}), ShimOptions{Receive: newRecorder().receive})
	if err := shim.Start(withDeadline(t), Registration{Config: "bad"}); !isRefusal(err, codes.InvalidArgument) {
		t.Fatalf("started with %v", err)
	}
	waitDone(t, shim.Done())
}

func TestRefusalOfWhatRunsIsNotPassedOnWhenACoreIsToldAgain(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	refuse := make(chan struct{})
	core.RefuseNode = func(id string) string {
		select {
		case <-refuse:
			return map[string]string{"n1": "invalid-resource: by the new core"}[id]
		default:
			return ""
		}
	}
	core.RefuseAllocation = func(key string) string {
		select {
		case <-refuse:
			return map[string]string{"t1": "node-not-found: n1"}[key]
		default:
			return ""
		}
	}
	serveCore(t, core)
	shim, heard := startShim(t, core, ShimOptions{}, Registration{})
	build(t, core, shim, heard)
	before := len(heard.all())
	close(refuse)
	core.EndStreams(status.Error(codes.FailedPrecondition, "resync-required"))
	waitLive(t, shim, 2)
	if news := heard.all()[before:]; len(news) != 0 {
		t.Fatalf("heard %v", news)
	}
	if got := shim.Status(); got.Refused != 2 || got.Mirror.Allocations != 2 {
		t.Fatalf("status: %+v", got)
	}
}

func TestPausedShimLeavesTheCoreToOthersAndTellsEverythingWhenItResumes(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	serveCore(t, core)
	shim, heard := startShim(t, core, ShimOptions{Callbacks: attached}, Registration{})
	build(t, core, shim, heard)
	shim.Pause(withDeadline(t))
	eventually(t, "the end of the session", func() bool { return !shim.Status().Live })
	shim.UpdateNodes(node("n3"))
	another := register(t, connect(t, core, Options{}))
	if err := another.Close(withDeadline(t)); err != nil {
		t.Fatal(err)
	}
	if registrations := count(core.Log(), "register rm-1"); registrations != 2 {
		t.Fatalf("%d registrations while it was paused", registrations)
	}
	shim.Resume()
	heard.waitFor(t, "node n3")
	waitLive(t, shim, 2)
	if !core.Await(func([]string) bool { return slices.Contains(core.Since("register"), "node n1 DRAIN_TO_SCHEDULABLE") }) {
		t.Fatalf("not opened: %v", core.Since("register"))
	}
	expectOrder(t, core.Since("register"), "allocation t1 on n1", "node n1 DRAIN_TO_SCHEDULABLE")
}

func TestShimThatIsPausedCloses(t *testing.T) {
	shim, _ := startShim(t, serveCore(t, fakecore.New()), ShimOptions{}, Registration{})
	shim.Pause(withDeadline(t))
	if err := shim.Close(withDeadline(t)); err != nil {
		t.Fatal(err)
	}
}
