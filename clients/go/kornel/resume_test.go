package kornel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"kornel.internal/clients/go/fakecore"
)

var killed = status.Error(codes.Unavailable, "killed")

func newResumingCore() *fakecore.Core {
	core := fakecore.New()
	core.Resumes = true
	return core
}

// startWithApplication starts a shim with a node and an application.
func startWithApplication(t *testing.T, core *fakecore.Core) (*Shim, *recorder) {
	t.Helper()
	shim, heard := startShim(t, core, ShimOptions{}, Registration{})
	shim.UpdateNodes(node("n1"))
	shim.UpdateApplications(addApps("a"))
	heard.waitFor(t, "node n1", "application a")
	return shim, heard
}

func waitUntil(t *testing.T, core *fakecore.Core, entry string, times int) {
	t.Helper()
	if !core.Await(func(log []string) bool { return count(log, entry) >= times }) {
		t.Fatalf("%q did not come %d times:\n%q", entry, times, core.Log())
	}
}

func TestWhatTheCoreDidNotApplyIsSentOnceMore(t *testing.T) {
	core := serveCore(t, newResumingCore())
	shim, heard := startWithApplication(t, core)
	shim.UpdateAllocations(asks("a", "before"))
	heard.waitFor(t, "before on n1")

	core.Block(true, false)
	shim.UpdateAllocations(asks("a", "lost-1", "lost-2"))
	shim.UpdateNodes(node("n2"))
	eventually(t, "it was not written", func() bool { return shim.Status().Queued == 0 })
	core.Block(false, false)
	core.EndStreams(killed)

	heard.waitFor(t, "lost-1 on n1", "lost-2 on n1", "node n2")
	for _, entry := range []string{"ask before", "ask lost-1", "ask lost-2", "node n2 CREATE", "register rm-1"} {
		if found := count(core.Log(), entry); found != 1 {
			t.Errorf("%q was applied %d times", entry, found)
		}
	}
	expectOrder(t, core.Log(), "ask lost-1", "ask lost-2")
}

func TestWhatTheShimDidNotReceiveComesOnceMore(t *testing.T) {
	core := serveCore(t, newResumingCore())
	shim, heard := startWithApplication(t, core)
	shim.UpdateAllocations(asks("a", "before"))
	heard.waitFor(t, "before on n1")

	core.Block(false, true)
	shim.UpdateAllocations(asks("a", "unheard"))
	shim.UpdateApplications(addApps("b"))
	waitUntil(t, core, "ask unheard", 1)
	waitUntil(t, core, "application b", 1)
	core.Block(false, false)
	core.EndStreams(killed)

	heard.waitFor(t, "unheard on n1", "application b")
	shim.UpdateAllocations(asks("a", "after"))
	heard.waitFor(t, "after on n1")
	for _, entry := range []string{"before on n1", "unheard on n1", "after on n1", "application b", "node n1"} {
		if found := count(heard.all(), entry); found != 1 {
			t.Errorf("%q came %d times", entry, found)
		}
	}
	if found := shim.Status().Registrations; found != 1 {
		t.Errorf("registered %d times", found)
	}
}

func TestSessionSaysThatItsStreamGoesOnExactly(t *testing.T) {
	core := serveCore(t, newResumingCore())
	session := register(t, connect(t, core, Options{}))
	if _, err := session.CreateNodes(withDeadline(t), node("n1")); err != nil {
		t.Fatal(err)
	}
	core.EndStreams(killed)
	next(t, session, func(update Update) bool { return update == StreamReopened{NodeStream, true} })
	if !core.WaitFor("goes on UpdateNode epoch-1/0", "goes on UpdateNode epoch-1/1") {
		t.Fatalf("%q", core.Log())
	}
}

func TestShimTellsEverythingWhereTheCoreHasLostWhatItHadApplied(t *testing.T) {
	core := serveCore(t, newResumingCore())
	shim, heard := startWithApplication(t, core)
	// What is known to be applied is not kept, so that it cannot be sent again.
	const tasks = acknowledgedEvery + 100
	shim.UpdateAllocations(asks("a", names("task-", tasks)...))
	heard.waitFor(t, fmt.Sprintf("task-%d on n1", tasks-1))
	eventually(t, "nothing was acknowledged", func() bool {
		told := core.Received()
		return told.GetAllocations() > 0 && told.GetNodes() == 1 && told.GetApplications() == 1
	})
	core.LoseEntries("UpdateAllocation", tasks)
	core.EndStreams(killed)
	waitLive(t, shim, 2)
	for _, each := range heard.all()[2+tasks:] {
		t.Errorf("heard again: %s", each)
	}
	if found := count(core.Log(), "allocation task-0 on n1"); found != 1 {
		t.Errorf("it was reported %d times", found)
	}
}

func TestShimWaitsForACoreThatGoesOnExactly(t *testing.T) {
	core := serveCore(t, newResumingCore())
	heard := newRecorder()
	client := connect(t, core, Options{ReconnectTimeout: 50 * time.Millisecond})
	shim := NewShim(client, ShimOptions{Receive: heard.receive})
	if err := shim.Start(withDeadline(t), Registration{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shim.Close(withDeadline(t)) })
	shim.UpdateNodes(node("n1"))
	shim.UpdateApplications(addApps("a"))
	heard.waitFor(t, "node n1", "application a")
	core.Stop()
	eventually(t, "the break was not seen", func() bool { return !shim.Status().Live })
	shim.UpdateAllocations(asks("a", "meanwhile"))
	time.Sleep(200 * time.Millisecond) // longer than a session waits if it cannot go on exactly
	core.Serve()
	heard.waitFor(t, "meanwhile on n1")
	waitLive(t, shim, 1)
	if found := shim.Status().Registrations; found != 1 {
		t.Errorf("registered %d times", found)
	}
}

func TestShimIsNotLiveBeforeTheCoreHasAcceptedItsStreams(t *testing.T) {
	core := newResumingCore()
	var opened atomic.Int32
	answer := make(chan struct{})
	core.ServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if opened.Add(1) > 3 {
			<-answer
		}
		return handle(server, stream)
	})}
	serveCore(t, core)
	shim, _ := startWithApplication(t, core)
	waitLive(t, shim, 1)
	core.Stop()
	eventually(t, "the break was not seen", func() bool { return !shim.Status().Live })
	core.Restart() // refuses to go on, but says so late
	eventually(t, "the streams were not opened", func() bool { return opened.Load() == 6 })
	for range 20 {
		if shim.Status().Live {
			t.Error("live before the core has answered")
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(answer)
	waitLive(t, shim, 2)
}

func TestShimIsLiveAgainAfterAStreamThatCouldNotBeOpened(t *testing.T) {
	core := serveCore(t, newResumingCore())
	var failing atomic.Bool
	fail := grpc.WithChainStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if failing.Swap(false) {
			return nil, status.Error(codes.Unavailable, "not now")
		}
		return open(ctx, description, connection, method, options...)
	})
	shim := NewShim(connect(t, core, Options{DialOptions: []grpc.DialOption{core.Dialer(), fail}}), ShimOptions{Receive: newRecorder().receive})
	if err := shim.Start(withDeadline(t), Registration{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shim.Close(withDeadline(t)) })
	waitUntil(t, core, "bind UpdateNode", 1)
	waitUntil(t, core, "bind UpdateApplication", 1)
	waitUntil(t, core, "bind UpdateAllocation", 1)
	failing.Store(true)
	core.EndStreams(killed)
	eventually(t, "no stream was opened", func() bool { return !failing.Load() })
	waitLive(t, shim, 1)
}

func TestEntriesAreKeptUntilTheyAreApplied(t *testing.T) {
	box := newOutbox(0, 1000, func(proto.Message) int { return 0 })
	asked := 0
	box.keepUntilApplied(3, func() { asked++ })
	ctx := withDeadline(t)
	if err := box.put(ctx, node("1"), node("2"), node("3"), node("4")); err != nil {
		t.Fatal(err)
	}
	write := func(most int) (ids []string) {
		for _, each := range box.peek()[:most] {
			ids = append(ids, proto.Clone(each).(interface{ GetNodeID() string }).GetNodeID())
		}
		box.written(most)
		return ids
	}
	write(3)
	if got := box.peek(); got != nil || asked != 1 {
		t.Fatalf("three are not applied, and it takes %v (asked %d times)", got, asked)
	}
	box.noteApplied(1)
	if got := write(1); !slices.Equal(got, []string{"4"}) {
		t.Fatalf("took %v", got)
	}
	// The second one arrived; the third and fourth were under way.
	if !box.writeAgain(2) {
		t.Fatal("what follows is there")
	}
	if got := write(2); !reflect.DeepEqual(got, []string{"3", "4"}) {
		t.Fatalf("wrote %v again", got)
	}
	for _, impossible := range []uint64{1, 5} {
		if box.writeAgain(impossible) {
			t.Errorf("went on behind %d of 2 to 4 entries", impossible)
		}
	}
}

func TestSessionEndsWhereTheCoreDoesNotSayWhatItHasApplied(t *testing.T) {
	for _, said := range []string{"", "epoch-1", "/1", "epoch-1/-1", "epoch-1/x"} {
		counts := newProgress("epoch-1", newOutbox(0, 1, func(proto.Message) int { return 0 }), 10, func() {})
		err := counts.followGreeting(map[string][]string{resumeKey: {said}})
		if _, fatal := judgeStreamEnd("UpdateNode", err); !errors.Is(fatal, ErrResyncRequired) {
			t.Errorf("%q: %v", said, err)
		}
	}
}

func names(prefix string, count int) []string {
	made := make([]string, count)
	for i := range made {
		made[i] = fmt.Sprint(prefix, i)
	}
	return made
}
