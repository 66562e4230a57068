package kornel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"kornel.internal/clients/go/fakecore"
)

func TestAnswersToNodesAndApplicationsAreReturned(t *testing.T) {
	core := fakecore.New()
	core.RefuseNode = func(id string) string { return map[string]string{"bad": "invalid-resource: no"}[id] }
	core.RefuseApplication = func(id string) string { return map[string]string{"lost": "no-queue: no"}[id] }
	session := register(t, connect(t, serveCore(t, core), Options{}))

	nodes, err := session.CreateNodes(withDeadline(t), node("good"), node("bad"))
	if err != nil || !reflect.DeepEqual(nodes, []Update{NodeAccepted{"good"}, NodeRejected{"bad", "invalid-resource: no"}}) {
		t.Fatalf("%v %v", nodes, err)
	}
	applications, err := session.AddApplications(withDeadline(t), app("lost"), app("a"))
	if err != nil || !reflect.DeepEqual(applications, []Update{ApplicationRejected{"lost", "no-queue: no"}, ApplicationAccepted{"a"}}) {
		t.Fatalf("%v %v", applications, err)
	}
	if err := session.SubmitAsks(withDeadline(t), Ask{Key: "k", ApplicationID: "a"}); err != nil {
		t.Fatal(err)
	}
	placed := next(t, session, func(update Update) bool { _, ok := update.(Allocated); return ok })
	if got := placed.(Allocated); got.Key != "k" || got.NodeID != "good" {
		t.Fatalf("placed: %+v", got)
	}
}

func TestStreamsThatBreakAreOpenedAgainWithoutAnotherRegistration(t *testing.T) {
	for _, end := range []error{
		status.Error(codes.Unavailable, "broken"), status.Error(codes.Aborted, "try again"), status.Error(codes.Internal, "bug"), nil,
	} {
		t.Run(fmt.Sprint(status.Code(end)), func(t *testing.T) {
			core := serveCore(t, fakecore.New())
			session := register(t, connect(t, core, Options{}))
			if !core.WaitFor("bind UpdateNode", "bind UpdateApplication", "bind UpdateAllocation") {
				t.Fatal("not bound")
			}
			if end == nil {
				core.Stop() // the connection breaks
				core.Serve()
			} else {
				core.EndStreams(end)
			}
			next(t, session, func(update Update) bool { return update == StreamReopened{Stream: NodeStream} })
			answers, err := session.CreateNodes(withDeadline(t), node("n"))
			if err != nil || answers[0] != (NodeAccepted{"n"}) {
				t.Fatalf("%v %v", answers, err)
			}
			if got := count(core.Log(), "register rm-1"); got != 1 {
				t.Fatalf("registered %d times", got)
			}
		})
	}
}

func TestSessionEndsWhereAnotherTryWouldNotHelp(t *testing.T) {
	exhausted := status.Error(codes.ResourceExhausted, "a message of 65 MiB")
	for _, each := range []struct {
		end    error
		wanted func(error) bool
	}{
		{status.Error(codes.FailedPrecondition, "resync-required"), func(err error) bool { return errors.Is(err, ErrResyncRequired) }},
		{status.Error(codes.Aborted, "superseded: rm-1 registered again"), func(err error) bool { return errors.Is(err, ErrSuperseded) }},
		{status.Error(codes.PermissionDenied, "no"), func(err error) bool { return isRefusal(err, codes.PermissionDenied) }},
		{exhausted, func(err error) bool { return isRefusal(err, codes.ResourceExhausted) }},
	} {
		t.Run(fmt.Sprint(each.end), func(t *testing.T) {
			core := serveCore(t, fakecore.New())
			session := register(t, connect(t, core, Options{}))
			if !core.WaitFor("bind UpdateNode") {
				t.Fatal("not bound")
			}
			core.EndStreams(each.end)
			waitDone(t, session.Done())
			if !each.wanted(session.Err()) {
				t.Fatalf("ended with %v", session.Err())
			}
			if _, err := session.CreateNodes(withDeadline(t), node("n")); !each.wanted(err) {
				t.Fatalf("creating a node afterwards: %v", err)
			}
		})
	}
}

func TestStreamThatIsRefusedForNowIsOpenedAfterTheDelayThatTheCoreNames(t *testing.T) {
	core := serveCore(t, fakecore.New())
	session := register(t, connect(t, core, Options{}))
	if !core.WaitFor("bind UpdateNode") {
		t.Fatal("not bound")
	}
	const delay = 300 * time.Millisecond
	busy, err := status.New(codes.ResourceExhausted, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	core.EndStreams(busy.Err())
	next(t, session, func(update Update) bool { return update == StreamReopened{Stream: NodeStream} })
	if took := time.Since(began); took < delay {
		t.Fatalf("opened again after %v", took)
	}
}

func TestCloseWritesWhatIsQueuedAndHalfCloses(t *testing.T) {
	core := serveCore(t, fakecore.New())
	client := connect(t, core, Options{})
	session, err := client.Register(withDeadline(t), Registration{})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.SendNodes(withDeadline(t), node("last")); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(withDeadline(t)); err != nil {
		t.Fatal(err)
	}
	expectOrder(t, core.Log(), "node last CREATE", "half-closed UpdateNode")
	if !core.WaitFor("half-closed UpdateApplication", "half-closed UpdateAllocation") {
		t.Fatal("not half-closed")
	}
	if err := session.SendNodes(withDeadline(t), node("late")); !errors.Is(err, ErrClosed) {
		t.Fatalf("sent after the end: %v", err)
	}
}

func TestRegistrationWaitsAtMostAsLongAsItMay(t *testing.T) {
	client, err := NewClient(Options{Address: "127.0.0.1:1", RMID: "rm-1", ConnectTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Register(context.Background(), Registration{}); !errors.Is(err, ErrConnectionLost) {
		t.Fatalf("registered without a core: %v", err)
	}
}

func TestEntriesOfOneRequestKeepTheirOrder(t *testing.T) {
	box := newOutbox(0, 1000, rankOf[*si.AllocationRelease])
	allocation, release := &si.Allocation{AllocationKey: "a"}, &si.AllocationRelease{AllocationKey: "r"}
	ctx := withDeadline(t)
	if err := box.put(ctx, allocation, release, release, allocation, allocation); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for box.length() > 0 {
		batch := box.next(ctx)
		sizes = append(sizes, len(batch))
		box.written(len(batch))
	}
	// A message's allocations are handled before its releases, so an allocation after a release begins the next one.
	if !reflect.DeepEqual(sizes, []int{3, 2}) {
		t.Fatalf("batches of %v", sizes)
	}
}

func TestFullOutboxWaits(t *testing.T) {
	box := newOutbox(2, 1000, func(proto.Message) int { return 0 })
	ctx := withDeadline(t)
	full := make(chan error, 1)
	go func() { full <- box.put(ctx, node("1"), node("2"), node("3")) }()
	batch := box.next(ctx)
	for len(batch) < 2 {
		batch = box.next(ctx)
	}
	select {
	case err := <-full:
		t.Fatalf("three entries went into an outbox for two: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	box.written(1)
	if err := <-full; err != nil {
		t.Fatal(err)
	}
	if box.length() != 2 {
		t.Fatalf("%d entries wait", box.length())
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := box.put(short, node("4")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a full outbox took another one: %v", err)
	}
}

func TestAllCallsOfAClientNameOneSession(t *testing.T) {
	core := serveCore(t, fakecore.New())
	for _, sessions := range []int{1, 2} {
		client := connect(t, core, Options{})
		session := register(t, client)
		if err := session.AttachCallbacks(withDeadline(t), attached); err != nil {
			t.Fatal(err)
		}
		// A stream that is not open yet does not break: it is opened for the first time afterwards, and not reopened.
		if !core.Await(func([]string) bool { return slices.Contains(core.Since("register"), "bind UpdateNode") }) {
			t.Fatal("not bound")
		}
		core.Stop() // the next calls come over another connection
		core.Serve()
		next(t, session, func(update Update) bool { return update == StreamReopened{Stream: NodeStream} })
		if _, err := client.UpdateConfiguration(withDeadline(t), "", "queues", nil); err != nil {
			t.Fatal(err)
		}
		if got := core.Sessions(); len(got) != sessions || len(got[sessions-1]) < 20 {
			t.Fatalf("sessions: %q", got)
		}
		_ = session.Close(withDeadline(t))
	}
}

func TestRegistrationThatWaitsIsTriedAgainWhileAnotherSessionHoldsTheCore(t *testing.T) {
	core := fakecore.New()
	core.HoldRegistrations = 2
	client := connect(t, serveCore(t, core), Options{})
	session, err := client.Register(withDeadline(t), Registration{WaitFor: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_ = session.Close(withDeadline(t))
	if log := core.Log(); !reflect.DeepEqual(log[:3], []string{"held wait=1500ms", "held wait=1500ms", "register rm-1"}) {
		t.Fatalf("%v", log)
	}
}
