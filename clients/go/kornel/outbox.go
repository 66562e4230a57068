package kornel

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// maxBatchBytes is a quarter of the 64 MiB that both ends accept, so that there is room for field headers.
const maxBatchBytes = 16 << 20

// An outbox holds the entries of one stream, in order, until they are written. They are taken in batches, because on the
// wire each message costs more than each entry. No entry waits for a batch to fill.
type outbox struct {
	mu       sync.Mutex
	entries  []proto.Message
	capacity int // 0: without limit
	batch    int
	// rank returns the position of an entry's list in the order in which the core handles the lists of one request. A batch
	// ends where the rank would go down, so that entries are handled in the order in which they were queued.
	rank func(proto.Message) int
	// kept are the entries that were written and are not known to be applied, at most keep of them. keep is 0 if they need
	// not be kept.
	kept    []proto.Message
	keep    int
	applied uint64 // the number of entries that are known to be applied, since the registration
	onKept  func()
	closed  bool
	changed chan struct{} // closed and replaced at every change
}

func newOutbox(capacity, batch int, rank func(proto.Message) int) *outbox {
	return &outbox{capacity: capacity, batch: batch, rank: rank, changed: make(chan struct{})}
}

func (o *outbox) announceChange() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// put queues entries in order, and waits while the outbox is full. It returns [ErrClosed] once the outbox is closed.
func (o *outbox) put(ctx context.Context, entries ...proto.Message) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return ErrClosed
		}
		room := len(entries)
		if o.capacity > 0 {
			room = min(room, o.capacity-len(o.entries))
		}
		if room > 0 {
			o.entries = append(o.entries, entries[:room]...)
			entries = entries[room:]
			o.announceChange()
		}
		changed := o.changed
		o.mu.Unlock()
		if len(entries) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns the entries of the next request, which stay queued until [outbox.written] removes them. It returns none when
// the outbox is closed and empty, or ctx is done.
func (o *outbox) next(ctx context.Context) []proto.Message {
	for {
		o.mu.Lock()
		taken := o.peek()
		done := len(taken) > 0 || (o.closed && len(o.entries) == 0)
		changed := o.changed
		o.mu.Unlock()
		if done {
			return taken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (o *outbox) peek() []proto.Message {
	if o.keep > 0 && len(o.kept) >= o.keep {
		return nil
	}
	var size, count int
	for count < len(o.entries) && count < o.batch {
		entry := o.entries[count]
		size += proto.Size(entry)
		if count > 0 && (size > maxBatchBytes || o.rank(entry) < o.rank(o.entries[count-1])) {
			break
		}
		count++
	}
	return o.entries[:count:count]
}

// written removes the first count entries, which gRPC has taken.
func (o *outbox) written(count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// clear may have removed entries meanwhile.
	count = min(count, len(o.entries))
	if o.keep > 0 {
		o.kept = append(o.kept, o.entries[:count]...)
		if len(o.kept) >= min(o.keep, acknowledgedEvery) {
			o.onKept()
		}
	}
	o.entries = o.entries[count:]
	if len(o.entries) == 0 {
		o.entries = nil
	}
	o.announceChange()
}

// keepUntilApplied keeps entries from now on until they are known to be applied, at most keep of them. Once it keeps that
// many, it hands out no further entries until some of them are applied. onKept is called when it is time to ask the core
// how many are.
func (o *outbox) keepUntilApplied(keep int, onKept func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep, o.onKept = keep, onKept
}

// noteApplied drops the kept entries that are applied. applied is their number since the registration.
func (o *outbox) noteApplied(applied uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if applied > o.applied {
		count := min(applied-o.applied, uint64(len(o.kept)))
		o.kept = o.kept[count:]
		o.applied += count
		o.announceChange()
	}
}

// writeAgain makes all entries be written again except those that are applied; applied is their number since the
// registration. It returns false if the entry after those is no longer kept, or was never queued.
func (o *outbox) writeAgain(applied uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries = append(o.kept[:len(o.kept):len(o.kept)], o.entries...)
	o.kept = nil
	defer o.announceChange()
	// What was being written when the stream broke may have arrived as well.
	if applied < o.applied || applied-o.applied > uint64(len(o.entries)) {
		return false
	}
	o.entries = o.entries[applied-o.applied:]
	o.applied = applied
	return true
}

// drained waits until everything queued was written, or the outbox is closed.
func (o *outbox) drained(ctx context.Context) error {
	for {
		o.mu.Lock()
		done, changed := len(o.entries) == 0 || o.closed, o.changed
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close makes the outbox accept nothing more. What is queued can still be taken.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.announceChange()
	}
}

func (o *outbox) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

func (o *outbox) length() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries)
}

// clear drops everything that waits.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries = nil
	o.announceChange()
}
