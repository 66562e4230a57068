package kornel

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"kornel.internal/clients/go/kornelv1"
)

const (
	// resumeKey is the metadata entry in which both sides say how many entries they have of each other.
	resumeKey = "kornel-resume"
	// acknowledgedEvery is the number of entries received, or written and not known to be applied, after which both sides
	// tell each other their counts.
	acknowledgedEvery = 2_000
	// acknowledgedPause is the shortest time between two calls in which they do.
	acknowledgedPause = 100 * time.Millisecond
)

// A progress counts the entries sent and received on the streams of one kind since the registration, so that a stream can
// go on exactly where it broke, even at a core that was started again: each decision arrives once, and nothing that was sent
// is applied twice.
type progress struct {
	outbox *outbox
	due    func()

	mu           sync.Mutex
	epoch        string // empty: the core does not support this
	received     uint64
	acknowledged uint64
}

// newProgress counts from 0 at a core that named its epoch with the registration; empty: it named none. due is called when it
// is time to tell the core what was received.
func newProgress(epoch string, from *outbox, keep int, due func()) *progress {
	if epoch != "" {
		from.keepUntilApplied(keep, due)
	}
	return &progress{outbox: from, due: due, epoch: epoch}
}

// mark returns a context that says to the core what was received, for a stream that is opened.
func (p *progress) mark(ctx context.Context) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, resumeKey, p.epoch+"/"+strconv.FormatUint(p.received, 10))
}

// noteReceived counts the entries of a response: every field of it is a list of them.
func (p *progress) noteReceived(response proto.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch == "" {
		return
	}
	response.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.IsList() {
			p.received += uint64(value.List().Len())
		}
		return true
	})
	if p.received-p.acknowledged >= acknowledgedEvery {
		p.due()
	}
}

// awaitsGreeting tells whether the core says what it has applied when it opens a stream.
func (p *progress) awaitsGreeting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch != ""
}

// followGreeting goes on from the count with which the core opens a stream: what it has not applied is written again. An
// error says that the core gives no count, or one that does not fit what it said before.
func (p *progress) followGreeting(header metadata.MD) error {
	said := strings.Join(header.Get(resumeKey), ",")
	at := max(strings.LastIndexByte(said, '/'), 0)
	applied, err := strconv.ParseUint(strings.TrimPrefix(said[at:], "/"), 10, 63)
	if err != nil || at == 0 || !p.outbox.writeAgain(applied) {
		return status.Error(codes.FailedPrecondition, fmt.Sprintf(
			"resync-required: the core says %q of what it has applied, which is not what it had said before", said))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = said[:at]
	return nil
}

func (p *progress) counts() (epoch string, received uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.received
}

// noteAcknowledged notes that the core knows how much was received, and how much of what was sent it has applied.
func (p *progress) noteAcknowledged(received, applied uint64) {
	p.mu.Lock()
	p.acknowledged = max(p.acknowledged, received)
	p.mu.Unlock()
	p.outbox.noteApplied(applied)
}

// An acknowledger tells the core, whenever it is due, how much of each kind was received, and learns what it has applied.
type acknowledger struct {
	client                           *Client
	nodes, applications, allocations *progress
	due                              chan struct{}
}

func newAcknowledger(client *Client) *acknowledger {
	return &acknowledger{client: client, due: make(chan struct{}, 1)}
}

func (a *acknowledger) noteDue() {
	select {
	case a.due <- struct{}{}:
	default:
	}
}

// run exchanges counts until ctx is done.
func (a *acknowledger) run(ctx context.Context) {
	for {
		select {
		case <-a.due:
		case <-ctx.Done():
			return
		}
		pause := acknowledgedPause
		if a.exchange(ctx) != nil {
			pause = longestPause // The streams find out the reason.
			a.noteDue()
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

func (a *acknowledger) exchange(ctx context.Context) error {
	epoch, nodes := a.nodes.counts()
	epochOfApplications, applications := a.applications.counts()
	epochOfAllocations, allocations := a.allocations.counts()
	if epoch != epochOfApplications || epoch != epochOfAllocations {
		return nil // One stream has reached another core already, and the others will soon.
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := kornelv1.NewManagerServiceClient(a.client.connection).Acknowledge(limited, &kornelv1.AcknowledgeRequest{
		RmId:     a.client.options.RMID,
		Epoch:    epoch,
		Received: &kornelv1.StreamCounts{Nodes: nodes, Applications: applications, Allocations: allocations},
	})
	if err != nil {
		return err
	}
	applied := answer.GetApplied()
	a.nodes.noteAcknowledged(nodes, applied.GetNodes())
	a.applications.noteAcknowledged(applications, applied.GetApplications())
	a.allocations.noteAcknowledged(allocations, applied.GetAllocations())
	return nil
}
