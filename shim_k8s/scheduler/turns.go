package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"
)

// placementTimeout is how long a placement that was agreed to may take to reach the shim.
const placementTimeout = time.Second

// A Dependence orders the questions about asks to which it matters where others are placed. Thousands of questions are
// open at once, so that without it each would be judged without the yeses to the others in place: two pods that must not
// share a node would both be told yes for the same one.
type Dependence interface {
	// Begin waits until a question about the ask may be judged, or ctx is done. A second question about the ask whose
	// placement is awaited says that its placement did not come about.
	Begin(ctx context.Context, key string) error
	// Answer says that the question was judged. Where the ask is going to be placed, nothing else is judged until that is
	// settled.
	Answer(key string, placed bool)
	// Settle says that the placement of an ask is in place, or will never be.
	Settle(key string)
}

// Turns lets one ask at a time be judged and placed.
type Turns struct {
	timeout time.Duration

	mu      sync.Mutex
	busy    bool        // a question is being judged, or a placement is awaited
	awaited string      // the ask whose placement is awaited
	expiry  *time.Timer // ends waiting for it
	waiting []chan struct{}
}

var _ Dependence = (*Turns)(nil)

// NewTurns returns turns in which a placement is awaited for at most timeout.
func NewTurns(timeout time.Duration) *Turns { return &Turns{timeout: timeout} }

// Begin implements [Dependence]: first come, first served.
func (t *Turns) Begin(ctx context.Context, key string) error {
	t.mu.Lock()
	if t.awaited != "" && t.awaited == key {
		t.settle()
	}
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, turn); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	} else {
		t.pass() // its turn came at the same moment
	}
	return ctx.Err()
}

// Answer implements [Dependence].
func (t *Turns) Answer(key string, placed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !placed {
		t.pass()
		return
	}
	t.awaited = key
	var expiry *time.Timer
	expiry = time.AfterFunc(t.timeout, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.expiry == expiry {
			t.settle()
		}
	})
	t.expiry = expiry
}

// Settle implements [Dependence].
func (t *Turns) Settle(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.awaited != "" && t.awaited == key {
		t.settle()
	}
}

func (t *Turns) settle() {
	t.expiry.Stop()
	t.awaited, t.expiry = "", nil
	t.pass()
}

// pass gives the turn to whoever has waited longest.
func (t *Turns) pass() {
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}
