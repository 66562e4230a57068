package kornel

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"
)

// closeGrace is how long a session that is closed may take to write what is queued.
const closeGrace = 5 * time.Second

// A Session is one registration of a resource manager, with its streams. It survives breaks of streams and connections, and
// ends when it is closed or the core wants another registration.
//
// A method that sends returns once its entries are queued, and waits only while the queue is full. Its methods may be called
// from several goroutines.
type Session struct {
	client       *Client
	ctx          context.Context
	cancel       context.CancelFunc
	nodes        *outbox
	applications *outbox
	allocations  *outbox
	receiver     receiver
	updates      chan []Update
	once         atomic.Bool // the first break of a stream ends the session
	exact        bool        // streams that break go on where they were, and nothing is lost
	broken       atomic.Int32
	running      sync.WaitGroup
	done         chan struct{}

	mu      sync.Mutex
	closing bool
	failure error
	// closed is closed with the session, so that nothing waits for a reader that has gone.
	closed  chan struct{}
	answers map[answerKey][]chan Update
	// attachment answers questions; nil before [Session.AttachCallbacks].
	attachment *attachment
}

// A receiver takes the messages of the streams, each in the goroutine of its stream.
type receiver interface {
	receiveNodes(*si.NodeResponse)
	receiveApplications(*si.ApplicationResponse)
	receiveAllocations(*si.AllocationResponse)
}

type answerKey struct {
	kind StreamKind
	id   string
}

// Register registers the resource manager, opens its streams, and returns the session. The core forgets everything that an
// earlier registration of the same manager reported. The error is [ErrConnectionLost], [ErrSuperseded] or a [RefusedError].
func (c *Client) Register(ctx context.Context, registration Registration) (*Session, error) {
	epoch, err := c.register(ctx, registration)
	if err != nil {
		return nil, err
	}
	return c.openSession(nil, c.options.Outbox, epoch, false), nil
}

// openSession opens the streams of a manager that has registered at a core that named this epoch. What arrives goes to taker,
// or into [Session.Updates].
func (c *Client) openSession(taker receiver, outboxCapacity int, epoch string, once bool) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	unordered := func(proto.Message) int { return 0 }
	s := &Session{
		client: c,
		ctx:    ctx,
		cancel: cancel,
		exact:  epoch != "",
		nodes:  newOutbox(outboxCapacity, c.options.Batch, unordered),
		// A request's new applications are handled before those that it removes, and its allocations before its releases.
		applications: newOutbox(outboxCapacity, c.options.Batch, rankOf[*si.RemoveApplicationRequest]),
		allocations:  newOutbox(outboxCapacity, c.options.Batch, rankOf[*si.AllocationRelease]),
		updates:      make(chan []Update, c.options.Inbox),
		done:         make(chan struct{}),
		closed:       make(chan struct{}),
		answers:      map[answerKey][]chan Update{},
	}
	s.once.Store(once)
	counts := newAcknowledger(c)
	counts.nodes = newProgress(epoch, s.nodes, c.options.Outbox, counts.noteDue)
	counts.applications = newProgress(epoch, s.applications, c.options.Outbox, counts.noteDue)
	counts.allocations = newProgress(epoch, s.allocations, c.options.Outbox, counts.noteDue)
	s.receiver = taker
	if taker == nil {
		s.receiver = (*updateReceiver)(s)
	}
	startStream(s, &stream[si.NodeRequest, si.NodeResponse]{
		kind: NodeStream,
		open: func(ctx context.Context) (duplex[si.NodeRequest, si.NodeResponse], error) {
			return c.scheduler.UpdateNode(ctx)
		},
		first:    func() *si.NodeRequest { return &si.NodeRequest{RmID: c.options.RMID} },
		next:     nextRequest(s.nodes, s.encodeNodes),
		progress: counts.nodes,
		deliver:  func(_ context.Context, response *si.NodeResponse) { s.receiver.receiveNodes(response) },
	})
	startStream(s, &stream[si.ApplicationRequest, si.ApplicationResponse]{
		kind: ApplicationStream,
		open: func(ctx context.Context) (duplex[si.ApplicationRequest, si.ApplicationResponse], error) {
			return c.scheduler.UpdateApplication(ctx)
		},
		first:    func() *si.ApplicationRequest { return &si.ApplicationRequest{RmID: c.options.RMID} },
		next:     nextRequest(s.applications, s.encodeApplications),
		progress: counts.applications,
		deliver:  func(_ context.Context, response *si.ApplicationResponse) { s.receiver.receiveApplications(response) },
	})
	startStream(s, &stream[si.AllocationRequest, si.AllocationResponse]{
		kind: AllocationStream,
		open: func(ctx context.Context) (duplex[si.AllocationRequest, si.AllocationResponse], error) {
			return c.scheduler.UpdateAllocation(ctx)
		},
		first:    func() *si.AllocationRequest { return &si.AllocationRequest{RmID: c.options.RMID} },
		next:     nextRequest(s.allocations, s.encodeAllocations),
		progress: counts.allocations,
		deliver:  func(_ context.Context, response *si.AllocationResponse) { s.receiver.receiveAllocations(response) },
	})
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		counts.run(ctx)
	}()
	go func() {
		s.running.Wait()
		s.end(ErrClosed)
		<-acknowledging
		close(s.updates)
		close(s.done)
	}()
	return s
}

// startStream runs one stream until the session ends, and ends the session when the stream cannot be opened again.
func startStream[Request, Response any](s *Session, each *stream[Request, Response]) {
	each.closing = s.isClosing
	each.once = s.once.Load
	each.ready = s.waitUntilReady
	each.broke = func() { s.broken.Add(1) }
	each.reopened = func() {
		s.broken.Add(-1)
		s.put(StreamReopened{each.kind, s.exact})
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if err := each.run(s.ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.end(err)
		}
	}()
}

// waitUntilReady waits for a connection, at most for the time that the options set; without limit while isPatient is true.
func (s *Session) waitUntilReady(ctx context.Context) error {
	for {
		err := s.client.waitUntilReady(ctx, s.client.options.ReconnectTimeout)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrConnectionLost) || !s.isPatient() {
			return err
		}
		s.client.options.Logger.Warn("the core is away; the session goes on once it is back", "error", err)
	}
}

// isPatient tells whether the session waits for its core without limit. The session of a [Shim] does so if its streams go
// on exactly where they broke, until so many entries wait to be sent that reporting everything anew is no more work.
func (s *Session) isPatient() bool {
	if _, reads := s.receiver.(*updateReceiver); reads || !s.exact {
		return false
	}
	waiting := 0
	for _, each := range s.outboxes() {
		waiting += each.length()
	}
	return waiting <= s.client.options.Outbox
}

func rankOf[Later proto.Message](entry proto.Message) int {
	if _, found := entry.(Later); found {
		return 1
	}
	return 0
}

// nextRequest returns the source of a stream's requests: what waits in the outbox, encoded by encode.
func nextRequest[Request any](from *outbox, encode func([]proto.Message) *Request) func(context.Context) (*Request, func()) {
	return func(ctx context.Context) (*Request, func()) {
		batch := from.next(ctx)
		if len(batch) == 0 {
			return nil, nil
		}
		return encode(batch), func() { from.written(len(batch)) }
	}
}

func (s *Session) encodeNodes(batch []proto.Message) *si.NodeRequest {
	request := &si.NodeRequest{RmID: s.client.options.RMID, Nodes: make([]*si.NodeInfo, len(batch))}
	for i, entry := range batch {
		request.Nodes[i] = entry.(*si.NodeInfo)
	}
	return request
}

func (s *Session) encodeApplications(batch []proto.Message) *si.ApplicationRequest {
	request := &si.ApplicationRequest{RmID: s.client.options.RMID}
	for _, entry := range batch {
		switch entry := entry.(type) {
		case *si.AddApplicationRequest:
			request.New = append(request.New, entry)
		case *si.RemoveApplicationRequest:
			request.Remove = append(request.Remove, entry)
		}
	}
	return request
}

func (s *Session) encodeAllocations(batch []proto.Message) *si.AllocationRequest {
	request := &si.AllocationRequest{RmID: s.client.options.RMID}
	for _, entry := range batch {
		switch entry := entry.(type) {
		case *si.Allocation:
			request.Allocations = append(request.Allocations, entry)
		case *si.AllocationRelease:
			if request.Releases == nil {
				request.Releases = &si.AllocationReleasesRequest{}
			}
			request.Releases.AllocationsToRelease = append(request.Releases.AllocationsToRelease, entry)
		}
	}
	return request
}

// Updates returns a channel of what the core says: one list per message, in the order of each stream. It is closed with the
// session; [Session.Err] then tells why. While nobody reads it, the streams are not read, and the core has to wait.
func (s *Session) Updates() <-chan []Update { return s.updates }

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session ended: [ErrResyncRequired], [ErrSuperseded], [ErrConnectionLost] or a [RefusedError]. It
// returns nil while the session lasts, and after it was closed.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.failure, ErrClosed) {
		return nil
	}
	return s.failure
}

// CreateNodes reports new nodes and returns the core's answer to each: a [NodeAccepted] or a [NodeRejected]. Only then may
// allocations be reported on them.
func (s *Session) CreateNodes(ctx context.Context, nodes ...*si.NodeInfo) ([]Update, error) {
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		ids[i] = node.GetNodeID()
	}
	return s.await(ctx, NodeStream, ids, func() error { return s.SendNodes(ctx, nodes...) })
}

// AddApplications adds applications and returns the core's answer to each: an [ApplicationAccepted] or an
// [ApplicationRejected]. Only then may asks for them be sent.
func (s *Session) AddApplications(ctx context.Context, applications ...*si.AddApplicationRequest) ([]Update, error) {
	ids := make([]string, len(applications))
	for i, application := range applications {
		ids[i] = application.GetApplicationID()
	}
	return s.await(ctx, ApplicationStream, ids, func() error { return s.applications.put(ctx, messages(applications)...) })
}

// SendNodes reports nodes and node actions in order.
func (s *Session) SendNodes(ctx context.Context, nodes ...*si.NodeInfo) error {
	return s.nodes.put(ctx, messages(nodes)...)
}

// RemoveApplications removes applications with all their asks and allocations.
func (s *Session) RemoveApplications(ctx context.Context, applications ...*si.RemoveApplicationRequest) error {
	return s.applications.put(ctx, messages(applications)...)
}

// SubmitAsks asks for room. The only answer is the decision: [Allocated], [Released] or [AskRejected].
func (s *Session) SubmitAsks(ctx context.Context, asks ...Ask) error {
	allocations := make([]proto.Message, len(asks))
	for i, ask := range asks {
		allocations[i] = ask.Allocation()
	}
	return s.allocations.put(ctx, allocations...)
}

// ReportAllocations reports tasks that run already, or foreign ones. The core confirms new ones with [Allocated], foreign
// ones not at all. An allocation without a node is an ask.
func (s *Session) ReportAllocations(ctx context.Context, allocations ...*si.Allocation) error {
	return s.allocations.put(ctx, messages(allocations)...)
}

// Release ends allocations, withdraws asks, or confirms ends that the core has started; see [ReleaseOf].
func (s *Session) Release(ctx context.Context, releases ...*si.AllocationRelease) error {
	return s.allocations.put(ctx, messages(releases)...)
}

// Flush waits until gRPC has taken everything sent so far.
func (s *Session) Flush(ctx context.Context) error {
	for _, each := range s.outboxes() {
		if err := each.drained(ctx); err != nil {
			return err
		}
	}
	return s.Err()
}

// Close writes what is queued, half-closes the streams and leaves nothing running. After five seconds, or when ctx is done,
// it cuts the streams, and waits five seconds more for a receiver or callback that is still running.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
	s.mu.Unlock()
	s.closeOutboxes()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.cancel()
	select {
	case <-s.done:
		return s.Err()
	default:
	}
	// Streams that were cut end at once, unless one of them delivers something.
	limit := time.NewTimer(closeGrace)
	defer limit.Stop()
	select {
	case <-s.done:
		return s.Err()
	case <-limit.C:
		return context.DeadlineExceeded
	}
}

func (s *Session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// end ends the session; the first reason stands.
func (s *Session) end(reason error) {
	s.mu.Lock()
	if s.failure == nil {
		s.failure = reason
	}
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
	s.mu.Unlock()
	s.closeOutboxes()
	s.cancel()
}

func (s *Session) outboxes() []*outbox { return []*outbox{s.nodes, s.applications, s.allocations} }

func (s *Session) closeOutboxes() {
	for _, each := range s.outboxes() {
		each.close()
	}
}

// reason returns the error for calls that wait while the session ends.
func (s *Session) reason() error {
	if err := s.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// await calls send, and returns the core's answers about the entries with these ids.
func (s *Session) await(ctx context.Context, kind StreamKind, ids []string, send func() error) ([]Update, error) {
	waiting := make([]chan Update, len(ids))
	s.mu.Lock()
	for i, id := range ids {
		waiting[i] = make(chan Update, 1)
		key := answerKey{kind, id}
		s.answers[key] = append(s.answers[key], waiting[i])
	}
	s.mu.Unlock()
	if err := send(); err != nil {
		if errors.Is(err, ErrClosed) {
			err = s.reason()
		}
		return nil, err
	}
	answers := make([]Update, len(ids))
	for i := range waiting {
		select {
		case answers[i] = <-waiting[i]:
		case <-s.ctx.Done():
			return nil, s.reason()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

func (s *Session) resolve(update Update) {
	var key answerKey
	switch update := update.(type) {
	case NodeAccepted:
		key = answerKey{NodeStream, update.NodeID}
	case NodeRejected:
		key = answerKey{NodeStream, update.NodeID}
	case ApplicationAccepted:
		key = answerKey{ApplicationStream, update.ApplicationID}
	case ApplicationRejected:
		key = answerKey{ApplicationStream, update.ApplicationID}
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiting := range s.answers[key] {
		waiting <- update
	}
	delete(s.answers, key)
}

// put queues updates for the reader of [Session.Updates], and waits while there is no room.
func (s *Session) put(updates ...Update) {
	if len(updates) == 0 {
		return
	}
	for _, update := range updates {
		s.resolve(update)
	}
	if _, reads := s.receiver.(*updateReceiver); !reads {
		return
	}
	select {
	case s.updates <- updates:
	case <-s.closed:
		// After the end nobody has to read, so put does not wait; what fits is still queued.
		select {
		case s.updates <- updates:
		default:
		}
	}
}

// An updateReceiver hands on what the core says as typed values.
type updateReceiver Session

func (r *updateReceiver) receiveNodes(response *si.NodeResponse) {
	(*Session)(r).put(NodeUpdates(response)...)
}

func (r *updateReceiver) receiveApplications(response *si.ApplicationResponse) {
	(*Session)(r).put(ApplicationUpdates(response)...)
}

func (r *updateReceiver) receiveAllocations(response *si.AllocationResponse) {
	(*Session)(r).put(AllocationUpdates(response)...)
}

func messages[Entry proto.Message](entries []Entry) []proto.Message {
	converted := make([]proto.Message, len(entries))
	for i, entry := range entries {
		converted[i] = entry
	}
	return converted
}
