package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/yunikorn-k8shim/pkg/conf"
	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

const deadline = 20 * time.Second

// A job is work that runs a function, and counts the calls of pause and resume.
type job struct {
	do              func(context.Context) error
	pauses, resumes chan struct{}
}

func (j job) run(ctx context.Context) error { return j.do(ctx) }
func (j job) pause()                        { j.pauses <- struct{}{} }
func (j job) resume()                       { j.resumes <- struct{}{} }

func contend(t *testing.T, ctx context.Context, clients *fake.Clientset, identity string, do func(context.Context) error) <-chan error {
	t.Helper()
	return contendFor(t, ctx, clients, identity, job{do: do, pauses: make(chan struct{}, 1), resumes: make(chan struct{}, 1)})
}

func contendFor(t *testing.T, ctx context.Context, clients *fake.Clientset, identity string, work work) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	settings := settings{lease: "kornel-shim", identity: identity, leaseDuration: 1500 * time.Millisecond}
	go func() {
		ended <- leadWith(ctx, clients, settings, slog.New(slog.NewTextHandler(io.Discard, nil)), work)
	}()
	return ended
}

func expectEnd(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(deadline):
		t.Fatal("it did not end")
		return nil
	}
}

// untilStopped works until ctx is done.
func untilStopped(started chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		return nil
	}
}

func TestOneShimSchedulesAndTheNextTakesOverWhenItStops(t *testing.T) {
	clients := fake.NewClientset()
	first, stopFirst := context.WithCancel(context.Background())
	second, stopSecond := context.WithCancel(context.Background())
	defer stopFirst()
	defer stopSecond()
	firstStarted, secondStarted := make(chan struct{}), make(chan struct{})
	firstEnded := contend(t, first, clients, "a", untilStopped(firstStarted))
	<-firstStarted
	secondEnded := contend(t, second, clients, "b", untilStopped(secondStarted))
	select {
	case <-secondStarted:
		t.Fatal("two shims schedule")
	case <-time.After(time.Second):
	}
	stopFirst()
	if err := expectEnd(t, firstEnded); err != nil {
		t.Fatal(err)
	}
	select {
	case <-secondStarted:
	case <-time.After(deadline):
		t.Fatal("nobody took over")
	}
	stopSecond()
	if err := expectEnd(t, secondEnded); err != nil {
		t.Fatal(err)
	}
}

func TestShimThatStandsByEndsWhenItIsStopped(t *testing.T) {
	clients := fake.NewClientset()
	holding, stopHolding := context.WithCancel(context.Background())
	defer stopHolding()
	started := make(chan struct{})
	contend(t, holding, clients, "a", untilStopped(started))
	<-started
	waiting, stopWaiting := context.WithCancel(context.Background())
	ended := contend(t, waiting, clients, "b", func(context.Context) error { return errors.New("it must not schedule") })
	stopWaiting()
	if err := expectEnd(t, ended); err != nil {
		t.Fatal(err)
	}
}

func TestWhatEndsTheWorkEndsTheProgram(t *testing.T) {
	broken := errors.New("superseded")
	ended := contend(t, context.Background(), fake.NewClientset(), "a", func(context.Context) error { return broken })
	if err := expectEnd(t, ended); !errors.Is(err, broken) {
		t.Fatalf("ended with %v", err)
	}
}

// away returns a switch; while it is set, the API server fails every request about Leases.
func away(clients *fake.Clientset) *atomic.Bool {
	var away atomic.Bool
	clients.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	return &away
}

func expect(t *testing.T, what string, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(deadline):
		t.Fatalf("it was not %s", what)
	}
}

func TestShimThatCannotRenewTheLeaseIsPausedUntilItCan(t *testing.T) {
	clients := fake.NewClientset()
	away := away(clients)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started := make(chan struct{})
	work := job{do: untilStopped(started), pauses: make(chan struct{}, 1), resumes: make(chan struct{}, 1)}
	ended := contendFor(t, ctx, clients, "a", work)
	expect(t, "started", started)
	away.Store(true)
	expect(t, "paused", work.pauses)
	away.Store(false)
	expect(t, "resumed", work.resumes)
	stop()
	if err := expectEnd(t, ended); err != nil {
		t.Fatal(err)
	}
}

func TestPausedShimEndsWhenItIsStopped(t *testing.T) {
	clients := fake.NewClientset()
	away := away(clients)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started := make(chan struct{})
	work := job{do: untilStopped(started), pauses: make(chan struct{}, 1), resumes: make(chan struct{}, 1)}
	ended := contendFor(t, ctx, clients, "a", work)
	expect(t, "started", started)
	away.Store(true)
	expect(t, "paused", work.pauses)
	stop()
	if err := expectEnd(t, ended); err != nil {
		t.Fatal(err)
	}
}

func TestPausedShimEndsWhenAnotherHoldsTheLease(t *testing.T) {
	clients := fake.NewClientset()
	away := away(clients)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started := make(chan struct{})
	work := job{do: untilStopped(started), pauses: make(chan struct{}, 1), resumes: make(chan struct{}, 1)}
	ended := contendFor(t, ctx, clients, "a", work)
	expect(t, "started", started)
	away.Store(true)
	expect(t, "paused", work.pauses)
	// Another shim, which can reach the API server, has taken the Lease.
	leases := clients.Tracker()
	found, err := leases.Get(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, conf.GetSchedulerNamespace(), "kornel-shim")
	if err != nil {
		t.Fatal(err)
	}
	lease := found.(*coordination.Lease).DeepCopy()
	another, now := "b", metav1.NewMicroTime(time.Now())
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &another, &now
	if err := leases.Update(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, lease, conf.GetSchedulerNamespace()); err != nil {
		t.Fatal(err)
	}
	away.Store(false)
	if err := expectEnd(t, ended); !errors.Is(err, errLeaseLost) {
		t.Fatalf("ended with %v", err)
	}
}
