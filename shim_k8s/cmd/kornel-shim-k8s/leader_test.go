package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

const deadline = 20 * time.Second

func contend(t *testing.T, ctx context.Context, clients *fake.Clientset, identity string, work func(context.Context) error) <-chan error {
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
