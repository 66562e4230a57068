package kornel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"kornel.internal/clients/go/kornelv1"
)

// ShimOptions say what a [Shim] does. Only Receive is required.
type ShimOptions struct {
	// Receive takes what the core says, any [Update] but a [StreamReopened]. It is called for one update at a time, over all
	// streams, and may call methods of the [Shim]. While it runs, no stream is read.
	Receive func(Update)
	// Callbacks answer the core's questions. They are attached before anything is reported.
	Callbacks Callbacks
	// ReopenOnBreak is for cores whose streams cannot go on exactly where they broke; at others it changes nothing. It has
	// the shim open broken streams again, and register again only when the core wants it to. What was being written or
	// delivered at the moment of the break is lost then, and the program has to notice that itself. Otherwise the shim
	// registers and reports everything after every break, so that nothing is lost; the conformance kit objects to that (S17).
	ReopenOnBreak bool
	// Forgotten is called before everything is reported to a core that has lost its state: releases that the core had asked
	// for, and that were not confirmed, are void. Receive does not run meanwhile.
	Forgotten func()
	// ConfigurationRefused is called when the core refuses a configuration that was set while it could not be reached. The
	// configuration before it stays in force.
	ConfigurationRefused func(error)
}

// A Shim keeps one resource manager registered at one core. It remembers what is reported and decided, and reports all of
// it, in the order of recovery, to a core that has lost its state; what is reported meanwhile follows. [ShimOptions.Receive]
// gets only what is news.
//
// The methods that report something never block and may be called from several goroutines.
type Shim struct {
	client  *Client
	options ShimOptions
	logger  *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	// delivery is held while Receive runs. It is taken before mu.
	delivery sync.Mutex

	mu           sync.Mutex
	mirror       *Mirror
	registration Registration // what the next registration sends
	good         Registration // the last one that the core accepted
	session      *Session
	phase        phase
	held         heldEntries
	echoes       map[string]bool // placed allocations whose confirmation is awaited
	echoed       chan struct{}
	status       ShimStatus
	failure      error
	started      bool
	bringing     bool          // bringConfiguration runs
	paused       chan struct{} // closed when the shim may register again; nil while it may
}

// A phase says how far a shim has come with its session.
type phase int

const (
	away      phase = iota // no session: reports are only remembered
	replaying              // the content of the mirror is being sent: reports wait
	live                   // reports are sent
)

type heldEntries struct{ nodes, applications, allocations []proto.Message }

// A ShimStatus describes a shim, for metrics and health.
type ShimStatus struct {
	// Live tells whether everything that was reported has been sent to the core.
	Live bool
	// Registrations counts those that succeeded.
	Registrations int
	// Refused counts entries that a core refused when they were reported again, although it had accepted them before.
	Refused int
	// Queued counts entries that wait to be written.
	Queued int
	// LastError is why the last session ended, or could not begin.
	LastError error
	Mirror    MirrorSize
}

// NewShim prepares a shim that uses client. Closing the shim leaves the client open.
func NewShim(client *Client, options ShimOptions) *Shim {
	ctx, cancel := context.WithCancel(context.Background())
	return &Shim{
		client:  client,
		options: options,
		logger:  client.options.Logger,
		ctx:     ctx,
		cancel:  cancel,
		done:    make(chan struct{}),
		mirror:  NewMirror(),
	}
}

// Start registers the resource manager and returns once its streams are open and its callbacks are attached; it is called
// once. A configuration with errors is an error; anything else is tried again until ctx is done.
func (s *Shim) Start(ctx context.Context, registration Registration) error {
	s.mu.Lock()
	s.registration = registration
	s.started = true
	s.mu.Unlock()
	for pause := firstPause; ; pause = nextPause(pause) {
		err := s.open(ctx)
		if err == nil {
			go s.maintain()
			return nil
		}
		if isRefusal(err, codes.InvalidArgument) || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrClosed) {
			return s.giveUp(err)
		}
		if s.ctx.Err() != nil {
			return s.giveUp(ErrClosed)
		}
		s.noteEnd(err)
		s.logger.Warn("the core cannot be reached yet", "error", err)
		if sleep(ctx, spread(pause)) != nil {
			return s.giveUp(err)
		}
	}
}

func (s *Shim) giveUp(err error) error {
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	close(s.done)
	return err
}

// Done returns a channel that is closed when the shim has ended: because it was closed, or because another program has
// registered as the same resource manager.
func (s *Shim) Done() <-chan struct{} { return s.done }

// Err returns why the shim ended, such as [ErrSuperseded]. It returns nil before, and after the shim was closed.
func (s *Shim) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.failure, ErrClosed) {
		return nil
	}
	return s.failure
}

// Status returns the present state of the shim.
func (s *Shim) Status() ShimStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Live = s.phase == live && s.session.broken.Load() == 0
	status.Mirror = s.mirror.Size()
	status.Queued = len(s.held.nodes) + len(s.held.applications) + len(s.held.allocations)
	if s.session != nil {
		for _, each := range s.session.outboxes() {
			status.Queued += each.length()
		}
	}
	return status
}

// Close writes what is queued, half-closes the streams and leaves nothing running.
func (s *Shim) Close(ctx context.Context) error {
	s.mu.Lock()
	session, started := s.session, s.started
	s.mu.Unlock()
	s.cancel()
	if !started {
		return nil
	}
	if session != nil {
		_ = session.Close(ctx)
	}
	select {
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// UpdateNodes reports nodes and node actions in order.
func (s *Shim) UpdateNodes(nodes ...*si.NodeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.NoteNodes(nodes...)
	s.send(func(session *Session) *outbox { return session.nodes }, &s.held.nodes, messages(nodes))
}

// UpdateApplications adds and removes applications.
func (s *Shim) UpdateApplications(request *si.ApplicationRequest) {
	entries := append(messages(request.GetNew()), messages(request.GetRemove())...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.NoteApplications(request)
	s.send(func(session *Session) *outbox { return session.applications }, &s.held.applications, entries)
}

// UpdateAllocations reports asks, allocations and releases.
func (s *Shim) UpdateAllocations(request *si.AllocationRequest) {
	entries := append(messages(request.GetAllocations()), messages(request.GetReleases().GetAllocationsToRelease())...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.NoteAllocations(request)
	s.send(func(session *Session) *outbox { return session.allocations }, &s.held.allocations, entries)
}

// send queues entries for the session, or holds them back while the mirror is being reported.
func (s *Shim) send(pick func(*Session) *outbox, held *[]proto.Message, entries []proto.Message) {
	switch s.phase {
	case live:
		// The outboxes of a shim have no limit, so this does not wait. If the outbox is closed, the mirror still has the entries.
		_ = pick(s.session).put(s.ctx, entries...)
	case replaying:
		*held = append(*held, entries...)
	case away:
	}
}

// Pause writes what is queued and ends the session. The shim does not register again until [Shim.Resume]. Meanwhile the
// core keeps its state, reports are remembered, and another program may register as this manager.
func (s *Shim) Pause(ctx context.Context) {
	s.mu.Lock()
	session, already := s.session, s.paused != nil
	if !already {
		s.paused = make(chan struct{})
	}
	s.mu.Unlock()
	if !already && session != nil {
		_ = session.Close(ctx)
	}
}

// Resume lets a paused shim register again and report everything.
func (s *Shim) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// waitUntilResumed returns once the shim is not paused, or ctx is done.
func (s *Shim) waitUntilResumed(ctx context.Context) error {
	for {
		s.mu.Lock()
		paused := s.paused
		s.mu.Unlock()
		if paused == nil {
			return nil
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Acknowledge tells the core that placements are in place, see [Session.Acknowledge].
func (s *Shim) Acknowledge(placements ...*kornelv1.PlacementKey) {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil {
		session.Acknowledge(placements...)
	}
}

// UpdateConfiguration puts a queue configuration and other settings into force. A configuration that the core refuses is an
// error, and is dropped. If the core cannot be reached, the next registration sends the configuration; if the core refuses
// it then, the one before stays in force.
func (s *Shim) UpdateConfiguration(ctx context.Context, config string, extraConfig map[string]string) error {
	s.mu.Lock()
	next := s.registration
	next.Config, next.ExtraConfig = config, maps.Clone(extraConfig)
	connected := s.phase != away
	if !connected {
		s.registration = next
	}
	s.mu.Unlock()
	if !connected {
		s.logger.Info("the configuration is kept until the core is back")
		return nil
	}
	_, err := s.client.UpdateConfiguration(ctx, next.PolicyGroup, config, extraConfig)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.registration, s.good = next, next
		return nil
	case isRefusal(err, codes.Canceled) && ctx.Err() != nil:
		return err // The caller has given it up.
	case mayBeBrought(err):
		s.logger.Info("the configuration is kept until the core is back", "error", err)
		s.registration = next
		s.bringConfiguration()
		return nil
	}
	return err
}

// mayBeBrought tells whether the error is not about the configuration itself, so that it can be sent again.
func mayBeBrought(err error) bool {
	// A call ends CANCELLED if the client has closed its connection because another core leads.
	return isRefusal(err, codes.Unavailable, codes.FailedPrecondition, codes.DeadlineExceeded, codes.Canceled)
}

// bringConfiguration sends a configuration that no registration has sent: one that was set while a registration was under
// way, or to which the core gave no answer. mu is held.
func (s *Shim) bringConfiguration() {
	if s.bringing || s.phase != live || sameConfiguration(s.registration, s.good) {
		return
	}
	s.bringing = true
	go func() {
		for pause := firstPause; ; pause = nextPause(pause) {
			s.mu.Lock()
			next := s.registration
			if s.ctx.Err() != nil || s.phase != live || sameConfiguration(next, s.good) {
				s.bringing = false
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
			_, err := s.client.UpdateConfiguration(s.ctx, next.PolicyGroup, next.Config, next.ExtraConfig)
			refused := err != nil && !mayBeBrought(err) && s.ctx.Err() == nil
			s.mu.Lock()
			if err == nil {
				s.good = next
			} else if refused && sameConfiguration(s.registration, next) {
				s.registration = s.good
			}
			s.mu.Unlock()
			if refused {
				s.logRefusal(err)
			}
			_ = sleep(s.ctx, spread(pause))
		}
	}()
}

func (s *Shim) logRefusal(err error) {
	s.logger.Error("the core refuses the configuration; the last good one stays in force", "error", err)
	if s.options.ConfigurationRefused != nil {
		s.options.ConfigurationRefused(err)
	}
}

// steadySession is how long a session lasts after which the pauses before registrations begin anew.
const steadySession = 10 * time.Second

// maintain begins a new session whenever one has ended, until the shim is closed or superseded.
func (s *Shim) maintain() {
	defer close(s.done)
	pause := firstPause
	for {
		s.mu.Lock()
		session := s.session
		s.mu.Unlock()
		began := time.Now()
		<-session.Done()
		err := session.Err()
		s.noteEnd(err)
		if time.Since(began) >= steadySession {
			pause = firstPause
		} else if !errors.Is(err, ErrSuperseded) {
			// A core that ends every session at once must not get one registration after the other without a pause.
			_ = sleep(s.ctx, spread(pause))
			pause = nextPause(pause)
		}
		for ; ; pause = nextPause(pause) {
			s.noteEnd(err)
			if s.ctx.Err() != nil {
				s.fail(ErrClosed)
				return
			}
			if errors.Is(err, ErrSuperseded) {
				s.fail(err)
				return
			}
			s.logger.Warn("everything has to be reported to the core again", "reason", err)
			if err = s.open(s.ctx); err == nil {
				break
			}
			_ = sleep(s.ctx, spread(pause))
		}
	}
}

func (s *Shim) noteEnd(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = away
	s.held = heldEntries{}
	s.status.LastError = err
}

func (s *Shim) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// open begins a session: it registers, attaches the callbacks, and reports what the mirror holds.
func (s *Shim) open(ctx context.Context) error {
	if err := s.waitUntilResumed(ctx); err != nil {
		return err
	}
	session, err := s.register(ctx)
	if err != nil {
		return err
	}
	if err := s.replay(ctx, session); err != nil {
		_ = session.Close(ctx)
		<-session.done
		return err
	}
	return nil
}

// register registers with the configuration that was set last or, if the core refuses that one, with the last good one.
func (s *Shim) register(ctx context.Context) (*Session, error) {
	s.mu.Lock()
	wanted, good, registeredBefore := s.registration, s.good, s.status.Registrations > 0
	s.mu.Unlock()
	used := wanted
	epoch, err := s.client.register(ctx, wanted)
	if isRefusal(err, codes.InvalidArgument) && registeredBefore && !sameConfiguration(wanted, good) {
		s.logRefusal(err)
		used = good
		epoch, err = s.client.register(ctx, good)
	}
	if err != nil {
		return nil, err
	}
	// Answers that are lost with a stream would be awaited for ever, so until everything is reported any break ends the
	// session, unless its streams go on exactly where they broke.
	session := s.client.openSession(s.newReceiver(), 0, epoch, epoch == "")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good = used
	// The refused configuration is not tried again, unless a newer one was set meanwhile.
	if sameConfiguration(s.registration, wanted) {
		s.registration = used
	}
	s.session = session
	s.status.Registrations++
	if s.paused != nil {
		// Pause was called during the registration, when there was no session yet that it could end.
		session.end(ErrClosed)
	}
	return session, nil
}

func sameConfiguration(a, b Registration) bool {
	return a.Config == b.Config && maps.Equal(a.ExtraConfig, b.ExtraConfig)
}

// replay attaches the callbacks and reports what the mirror holds, then what came meanwhile.
func (s *Shim) replay(ctx context.Context, session *Session) error {
	if s.options.Callbacks.any() {
		err := session.AttachCallbacks(ctx, s.options.Callbacks)
		if errors.Is(err, ErrNotSupported) {
			s.logger.Warn("the core has no callbacks, so it places asks without predicates", "error", err)
		} else if err != nil {
			return err
		}
	}
	s.delivery.Lock()
	if s.options.Forgotten != nil {
		s.options.Forgotten()
	}
	s.mu.Lock()
	plan := s.mirror.Replay()
	s.phase = replaying
	s.held = heldEntries{}
	s.echoes = make(map[string]bool, len(plan.Placed))
	for _, placed := range plan.Placed {
		s.echoes[placed.GetAllocationKey()] = true
	}
	s.echoed = make(chan struct{})
	if len(s.echoes) == 0 {
		close(s.echoed)
	}
	s.mu.Unlock()
	s.deliver(AllocationUpdates(&si.AllocationResponse{Released: plan.Lost}))
	s.delivery.Unlock()
	if err := s.tell(ctx, session, plan); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	session.once.Store(!s.options.ReopenOnBreak && !session.exact)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = live
	s.bringConfiguration()
	held := s.held
	s.held = heldEntries{}
	_ = session.nodes.put(ctx, held.nodes...)
	_ = session.applications.put(ctx, held.applications...)
	_ = session.allocations.put(ctx, held.allocations...)
	return nil
}

func (s *Shim) tell(ctx context.Context, session *Session, plan *Replay) error {
	if _, err := session.CreateNodes(ctx, plan.Nodes...); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	answers, err := session.AddApplications(ctx, plan.Applications...)
	if err != nil {
		return fmt.Errorf("applications: %w", err)
	}
	refused := map[string]bool{}
	for _, answer := range answers {
		if rejected, ok := answer.(ApplicationRejected); ok {
			refused[rejected.ApplicationID] = true
			s.logger.Error("the core refuses an application that it had accepted", "application", rejected.ApplicationID, "reason", rejected.Reason)
		}
	}
	_ = session.ReportAllocations(ctx, plan.Foreign...)
	_ = session.ReportAllocations(ctx, plan.Placed...)
	select {
	case <-s.echoed:
	case <-session.ctx.Done():
		return session.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, ask := range plan.Asks {
		if !refused[ask.GetApplicationID()] {
			_ = session.ReportAllocations(ctx, ask)
		}
	}
	return session.SendNodes(ctx, plan.Open...)
}

// A shimReceiver takes the messages of one session. Messages of a session that has ended are dropped.
type shimReceiver struct {
	shim *Shim
}

func (s *Shim) newReceiver() receiver { return &shimReceiver{s} }

func (r *shimReceiver) receiveNodes(response *si.NodeResponse) {
	s := r.shim
	s.delivery.Lock()
	s.mu.Lock()
	news, refused := s.mirror.TakeNodes(response, s.phase == replaying)
	s.status.Refused += refused
	session := s.session
	s.mu.Unlock()
	for _, rejected := range response.GetRejected() {
		s.logger.Warn("the core refuses a node", "node", rejected.GetNodeID(), "reason", rejected.GetReason())
	}
	s.deliver(NodeUpdates(news))
	s.delivery.Unlock()
	resolveAll(session, NodeUpdates(response))
}

func (r *shimReceiver) receiveApplications(response *si.ApplicationResponse) {
	s := r.shim
	s.delivery.Lock()
	s.mu.Lock()
	news, refused := s.mirror.TakeApplications(response, s.phase == replaying)
	s.status.Refused += refused
	session := s.session
	s.mu.Unlock()
	s.deliver(ApplicationUpdates(news))
	s.delivery.Unlock()
	resolveAll(session, ApplicationUpdates(response))
}

func (r *shimReceiver) receiveAllocations(response *si.AllocationResponse) {
	s := r.shim
	s.delivery.Lock()
	defer s.delivery.Unlock()
	s.mu.Lock()
	news, refused := s.mirror.TakeAllocations(response, s.phase == replaying)
	s.status.Refused += refused
	s.noteEchoes(response)
	s.mu.Unlock()
	for _, rejected := range response.GetRejectedAllocations() {
		s.logger.Warn("the core refuses an allocation", "key", rejected.GetAllocationKey(), "reason", rejected.GetReason())
	}
	s.deliver(AllocationUpdates(news))
}

// deliver hands updates on. delivery is held.
func (s *Shim) deliver(updates []Update) {
	for _, update := range updates {
		s.options.Receive(update)
	}
}

func (s *Shim) noteEchoes(response *si.AllocationResponse) {
	if len(s.echoes) == 0 {
		return
	}
	for _, each := range response.GetNew() {
		delete(s.echoes, each.GetAllocationKey())
	}
	for _, each := range response.GetRejectedAllocations() {
		delete(s.echoes, each.GetAllocationKey())
	}
	for _, each := range response.GetReleased() {
		delete(s.echoes, each.GetAllocationKey())
	}
	if len(s.echoes) == 0 {
		close(s.echoed)
	}
}

func resolveAll(session *Session, updates []Update) {
	if session == nil {
		return
	}
	for _, update := range updates {
		session.resolve(update)
	}
}
