package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

const deadline = 10 * time.Second

func begin(t *testing.T, turns *Turns, key string) <-chan error {
	t.Helper()
	began := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	waiting := len(turns.queue())
	go func() { began <- turns.Begin(ctx, key) }()
	// It has begun, or waits behind those before it.
	for limit := time.Now().Add(deadline); len(began) == 0 && len(turns.queue()) == waiting; {
		if time.Now().After(limit) {
			t.Fatal("neither begun nor waiting")
		}
		time.Sleep(time.Millisecond)
	}
	return began
}

func (t *Turns) queue() []chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.waiting)
}

func expectBegun(t *testing.T, began <-chan error) {
	t.Helper()
	select {
	case err := <-began:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(deadline):
		t.Fatal("its turn did not come")
	}
}

func expectWaiting(t *testing.T, began <-chan error) {
	t.Helper()
	if len(began) != 0 {
		t.Fatal("it began while another placement was awaited")
	}
}

func TestNothingIsJudgedWhileAPlacementIsAwaited(t *testing.T) {
	for name, settle := range map[string]func(*Turns){
		"placed or released": func(turns *Turns) { turns.Settle("a") },
		"asked about again":  func(turns *Turns) { go func() { _ = turns.Begin(context.Background(), "a") }() },
		"nothing is heard":   func(*Turns) {},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := deadline
			if name == "nothing is heard" {
				timeout = 20 * time.Millisecond
			}
			turns := NewTurns(timeout)
			expectBegun(t, begin(t, turns, "a"))
			turns.Answer("a", true)
			if timeout == deadline {
				second := begin(t, turns, "b")
				expectWaiting(t, second)
				turns.Settle("other")
				expectWaiting(t, second)
				settle(turns)
				expectBegun(t, second)
				return
			}
			expectBegun(t, begin(t, turns, "b"))
		})
	}
}

func TestRefusalEndsTheTurnAtOnce(t *testing.T) {
	turns := NewTurns(deadline)
	expectBegun(t, begin(t, turns, "a"))
	second, third := begin(t, turns, "b"), begin(t, turns, "c")
	turns.Answer("a", false)
	expectBegun(t, second)
	expectWaiting(t, third)
	turns.Answer("b", false)
	expectBegun(t, third)
}

func TestQuestionThatIsGivenUpLeavesTheQueue(t *testing.T) {
	turns := NewTurns(deadline)
	expectBegun(t, begin(t, turns, "a"))
	ctx, cancel := context.WithCancel(context.Background())
	given := make(chan error, 1)
	go func() { given <- turns.Begin(ctx, "b") }()
	for len(turns.queue()) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Fatalf("given up with %v", err)
	}
	third := begin(t, turns, "c")
	turns.Answer("a", false)
	expectBegun(t, third)
}

func TestTimeoutOfAnEarlierPlacementLeavesALaterOneAlone(t *testing.T) {
	turns := NewTurns(50 * time.Millisecond)
	expectBegun(t, begin(t, turns, "a"))
	turns.Answer("a", true)
	turns.Settle("a")
	expectBegun(t, begin(t, turns, "b"))
	turns.timeout = deadline
	turns.Answer("b", true)
	third := begin(t, turns, "c")
	time.Sleep(100 * time.Millisecond) // the first timer has fired by now
	expectWaiting(t, third)
}

func TestOneAtATimeUnderManyQuestions(t *testing.T) {
	const questions = 500
	turns := NewTurns(deadline)
	var mu sync.Mutex
	var judging, most, judged int
	var all sync.WaitGroup
	for n := range questions {
		all.Add(1)
		go func() {
			defer all.Done()
			key := string(rune('a' + n%26))
			if turns.Begin(context.Background(), key) != nil {
				return
			}
			mu.Lock()
			judging++
			most = max(most, judging)
			judged++
			judging--
			mu.Unlock()
			turns.Answer(key, n%2 == 0)
			turns.Settle(key)
		}()
	}
	all.Wait()
	if most != 1 || judged != questions {
		t.Fatalf("%d judged, %d at once", judged, most)
	}
}
