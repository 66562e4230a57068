package kornel

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/fakecore"
)

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.Now().Add(deadline)
	for !is() {
		if time.Now().After(limit) {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// While the core cannot be reached, a registration waits for a connection most of the time.
func TestConfigurationThatIsSetWhileARegistrationIsUnderWayReachesTheCore(t *testing.T) {
	core := serveCore(t, fakecore.New())
	shim, heard := startShim(t, core, ShimOptions{}, Registration{Config: "first"})
	shim.UpdateNodes(node("n1"))
	heard.waitFor(t, "node n1")
	core.Stop()
	eventually(t, "the break was not seen", func() bool { return !shim.Status().Live })
	time.Sleep(500 * time.Millisecond)
	if err := shim.UpdateConfiguration(withDeadline(t), "second", nil); err != nil {
		t.Fatal(err)
	}
	core.Restart()
	waitLive(t, shim, 2)
	eventually(t, "the core has "+core.Config(), func() bool { return core.Config() == "second" })
}

func TestConfigurationThatTheCoreDoesNotAnswerReachesIt(t *testing.T) {
	core := fakecore.New()
	var asked atomic.Bool
	core.ServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if info.FullMethod == "/kornel.v1.ConfigurationService/UpdateConfiguration" && !asked.Swap(true) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return handle(ctx, request)
	})}
	serveCore(t, core)
	shim, _ := startShim(t, core, ShimOptions{}, Registration{Config: "first"})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := shim.UpdateConfiguration(ctx, "second", nil); err != nil {
		t.Errorf("refused: %v", err)
	}
	eventually(t, "the core has "+core.Config(), func() bool { return core.Config() == "second" })
}

func TestConfigurationThatItsCallerGivesUpIsNotSentLater(t *testing.T) {
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	core := fakecore.New()
	var asked atomic.Bool
	core.ServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(func(called context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if info.FullMethod == "/kornel.v1.ConfigurationService/UpdateConfiguration" && !asked.Swap(true) {
			giveUp()
			<-called.Done()
			return nil, called.Err()
		}
		return handle(called, request)
	})}
	serveCore(t, core)
	shim, _ := startShim(t, core, ShimOptions{}, Registration{Config: "first"})
	if err := shim.UpdateConfiguration(ctx, "second", nil); !isRefusal(err, codes.Canceled) {
		t.Errorf("not given up: %v", err)
	}
	core.Restart()
	waitLive(t, shim, 2)
	if found := core.Config(); found != "first" {
		t.Errorf("the core has %s", found)
	}
}

func TestStreamsThatBreakAtOnceAreNotOpenedWithoutPause(t *testing.T) {
	core := fakecore.New()
	broken := true
	core.ServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if broken && info.FullMethod == "/si.v1.Scheduler/UpdateAllocation" {
			return status.Error(codes.PermissionDenied, "not yours")
		}
		return handle(server, stream)
	})}
	serveCore(t, core)
	shim, _ := startShim(t, core, ShimOptions{}, Registration{})
	time.Sleep(time.Second)
	if n := shim.Status().Registrations; n > 8 {
		t.Fatalf("%d registrations in a second", n)
	}
}

func TestTaskThatEndsWhileTheCoreIsBeingToldIsNotStartedAgain(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	var shim *Shim
	core.RefuseAllocation = func(id string) string {
		if shim != nil && id == "t1" && shim.Status().Registrations == 2 {
			shim.UpdateAllocations(releases(ReleaseOf("a", "t2", si.TerminationType_STOPPED_BY_RM)))
		}
		return ""
	}
	serveCore(t, core)
	running, heard := startShim(t, core, ShimOptions{}, Registration{})
	build(t, core, running, heard)
	before := len(heard.all())
	shim = running
	core.EndStreams(status.Error(codes.FailedPrecondition, "resync-required"))
	heard.waitFor(t, "t2 released STOPPED_BY_RM")
	for _, each := range heard.all()[before:] {
		if each == "t2 on n1" {
			t.Fatalf("started again: %v", heard.all()[before:])
		}
	}
}

func TestBreakWhileTheCoreIsBeingToldDoesNotKeepTheShimAway(t *testing.T) {
	core := fakecore.New()
	core.HoldAsks = true
	hits := 0
	var shim *Shim
	core.RefuseNode = func(id string) string {
		if shim != nil && shim.Status().Registrations == 2 && hits == 0 {
			hits++
			go core.Stop()
			time.Sleep(300 * time.Millisecond)
		}
		return ""
	}
	serveCore(t, core)
	running, heard := startShim(t, core, ShimOptions{}, Registration{})
	build(t, core, running, heard)
	shim = running
	core.EndStreams(status.Error(codes.FailedPrecondition, "resync-required"))
	eventually(t, "no break", func() bool { return shim.Status().Registrations == 2 })
	time.Sleep(time.Second)
	core.Serve() // the core has kept its state
	eventually(t, "not live", func() bool { return shim.Status().Live })
}

func TestCloseHeedsItsContextWhileReceiveRuns(t *testing.T) {
	core := serveCore(t, fakecore.New())
	release, entered := make(chan struct{}), make(chan struct{})
	shim := NewShim(connect(t, core, Options{}), ShimOptions{Receive: func(Update) { close(entered); <-release }})
	if err := shim.Start(withDeadline(t), Registration{}); err != nil {
		t.Fatal(err)
	}
	defer close(release)
	shim.UpdateNodes(node("n1"))
	waitDone(t, entered)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() { _ = shim.Close(ctx); close(done) }()
	waitDone(t, done)
}

func TestShimThatWasNeverStartedCloses(t *testing.T) {
	core := serveCore(t, fakecore.New())
	shim := NewShim(connect(t, core, Options{}), ShimOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := shim.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestErrorSaysWhyThereIsNoConnection(t *testing.T) {
	client, err := NewClient(Options{Address: "127.0.0.1:1", RMID: "rm-1", ConnectTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Register(withDeadline(t), Registration{})
	if !errors.Is(err, ErrConnectionLost) || !strings.Contains(err.Error(), "refused") {
		t.Fatal(err)
	}
}

func TestReportedTaskThatCouldNotBeStartedIsToldAsAnAsk(t *testing.T) {
	mirror := NewMirror()
	mirror.NoteNodes(node("n1"))
	mirror.NoteApplications(addApps("a"))
	reported := asks("a", "t")
	reported.Allocations[0].NodeID = "n1"
	mirror.NoteAllocations(reported)
	mirror.NoteAllocations(releases(ReleaseOf("a", "t", schedulingFailedOnRM)))
	if plan := mirror.Replay(); len(plan.Asks) != 1 || plan.Asks[0].GetNodeID() != "" {
		t.Fatalf("told: %v", plan.Asks)
	}
}
