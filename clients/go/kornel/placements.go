package kornel

import (
	"context"
	"sync"
	"time"
)

// placementsRemembered is how many placements are remembered as in place. A question that waits for a placement comes with
// it or soon after, so older ones can be dropped.
const placementsRemembered = 10_000

// placements remembers which placements the shim has in place, for questions that wait for them.
type placements struct {
	mu      sync.Mutex
	known   map[string]uint64 // by key, the number of the latest note about it
	order   []noted           // the oldest first; an entry is void if its key was noted again or forgotten
	notes   uint64
	awaited map[string]chan struct{}
}

type noted struct {
	key    string
	number uint64
}

func newPlacements() *placements {
	return &placements{known: map[string]uint64{}, awaited: map[string]chan struct{}{}}
}

// note records that a placement is in place, or never will be, so that nobody waits for it.
func (p *placements) note(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes++
	p.known[key] = p.notes
	p.order = append(p.order, noted{key, p.notes})
	if len(p.order) > placementsRemembered {
		oldest := p.order[0]
		p.order = p.order[1:]
		if p.known[oldest.key] == oldest.number {
			delete(p.known, oldest.key)
		}
	}
	if waiting := p.awaited[key]; waiting != nil {
		delete(p.awaited, key)
		close(waiting)
	}
}

// forget removes a placement: the core asks about its ask again, so it is not in place.
func (p *placements) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

// wait waits until a placement is in place, or the longest time is over.
func (p *placements) wait(ctx context.Context, key string, longest time.Duration) {
	p.mu.Lock()
	if _, found := p.known[key]; found {
		p.mu.Unlock()
		return
	}
	waiting := p.awaited[key]
	if waiting == nil {
		waiting = make(chan struct{})
		p.awaited[key] = waiting
	}
	p.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-waiting:
	case <-timer.C:
	case <-ctx.Done():
	}
}
