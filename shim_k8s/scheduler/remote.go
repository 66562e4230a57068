package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	"kornel.internal/clients/go/kornel"
	"kornel.internal/clients/go/kornelv1"
)

const (
	// callbackTimeout is how long the core waits for an answer. The core's default of one second is too short for a shim that
	// answers some questions one after the other.
	callbackTimeout = 10 * time.Second
	// configurationTimeout bounds a change of the configuration, which the shim waits for.
	configurationTimeout = 10 * time.Second
	stopTimeout          = 10 * time.Second
)

// claimsRefusal is why a pod with resource claims runs on no node. The predicates would let it run anywhere, and it would be
// bound without the devices.
const claimsRefusal = "the pod has resource claims, and this scheduler allocates no devices for them"

var errNotRegistered = errors.New("the shim has not registered yet")

// Options say how a [Remote] reaches its core.
type Options struct {
	// Address is the address of the core, or the addresses of several that share a journal, separated by commas.
	Address     string
	Credentials kornel.Credentials
	Logger      *slog.Logger
	// DialOptions are added to those of the client.
	DialOptions []grpc.DialOption
}

// A Remote is a scheduler in another process, as the shim sees it.
type Remote struct {
	options Options
	counts  counts
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // closed when nothing will be scheduled any more
	endOnce sync.Once

	mu     sync.Mutex
	client *kornel.Client
	shim   *kornel.Shim
	// callback is the shim's interface, through which it receives decisions.
	callback api.ResourceManagerCallback
	// tell writes into a pod why it waits; nil: the shim does, in its own words.
	tell func(*si.UpdateContainerSchedulingStateRequest)
	// paused says that the shim must not schedule. It may be set before the shim has registered.
	paused bool

	// unconfirmed holds releases that were handed to the shim and that it has not confirmed.
	unconfirmed unconfirmed
	dependents  *dependents
}

var _ api.SchedulerAPI = (*Remote)(nil)

// New returns a scheduler that connects when the shim registers.
func New(options Options) *Remote {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Remote{
		options:    options,
		ctx:        ctx,
		cancel:     cancel,
		ended:      make(chan struct{}),
		dependents: newDependents(),
	}
}

// FindPods sets the function that finds the pod of an ask or allocation, or nil. Its rules, and those of others about it, say
// whether its nodes depend on where other pods run. It must be called before the shim runs. The function is called with the
// shim's locks held.
func (r *Remote) FindPods(find func(key string) *v1.Pod) {
	r.dependents.mu.Lock()
	defer r.dependents.mu.Unlock()
	r.dependents.find = find
}

// TellStates sets the function that writes into a pod why it waits. It must be called before the shim runs.
func (r *Remote) TellStates(tell func(*si.UpdateContainerSchedulingStateRequest)) { r.tell = tell }

// RegisterResourceManager connects to the core, registers and subscribes to its questions. It waits while the core cannot
// be reached. A configuration that the core refuses is an error.
func (r *Remote) RegisterResourceManager(request *si.RegisterResourceManagerRequest, callback api.ResourceManagerCallback) (*si.RegisterResourceManagerResponse, error) {
	client, err := kornel.NewClient(kornel.Options{
		Address:     r.options.Address,
		RMID:        request.GetRmID(),
		Credentials: r.options.Credentials,
		Logger:      r.options.Logger,
		DialOptions: r.options.DialOptions,
	})
	if err != nil {
		return nil, err
	}
	answers := &answers{callback: callback, tell: r.tell, dependents: r.dependents, counts: &r.counts}
	if answers.tell == nil {
		answers.tell = callback.UpdateContainerSchedulingState
	}
	decisions := &decisions{
		callback: callback, dependents: r.dependents, unconfirmed: &r.unconfirmed, counts: &r.counts, logger: r.options.Logger,
	}
	shim := kornel.NewShim(client, kornel.ShimOptions{
		Receive:              decisions.receive,
		Callbacks:            answers.callbacks(),
		Forgotten:            func() { r.unconfirmed.clear(); r.dependents.settleAll() },
		ConfigurationRefused: func(error) { r.counts.configurationsRefused.Add(1) },
	})
	decisions.acknowledge = shim.Acknowledge
	r.mu.Lock()
	r.client, r.shim, r.callback = client, shim, callback
	if r.paused {
		shim.Pause(r.ctx)
	}
	r.mu.Unlock()
	err = shim.Start(r.ctx, kornel.Registration{
		Config:      request.GetConfig(),
		PolicyGroup: request.GetPolicyGroup(),
		Version:     request.GetVersion(),
		BuildInfo:   request.GetBuildInfo(),
		ExtraConfig: request.GetExtraConfig(),
		// The shim that is registered stays registered. Otherwise two shims with different Leases would supersede each other for
		// ever: the superseded one ends, is started again, and registers in place of the other.
		WaitFor: time.Second,
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	go func() {
		<-shim.Done()
		r.endOnce.Do(func() { close(r.ended) })
	}()
	return &si.RegisterResourceManagerResponse{}, nil
}

// UpdateNode reports nodes. It never waits.
func (r *Remote) UpdateNode(request *si.NodeRequest) error {
	shim, err := r.registered()
	if err == nil {
		shim.UpdateNodes(request.GetNodes()...)
	}
	return err
}

// NodeChanged tells the core that a node has changed in a way that only the shim can judge, so that it asks again about pods
// that the shim refused there. It never waits.
func (r *Remote) NodeChanged(name string) {
	if shim, err := r.registered(); err == nil {
		shim.UpdateNodes(&si.NodeInfo{NodeID: name, Action: si.NodeInfo_UPDATE})
	}
}

// UpdateApplication adds and removes applications. It never waits.
func (r *Remote) UpdateApplication(request *si.ApplicationRequest) error {
	shim, err := r.registered()
	if err == nil {
		shim.UpdateApplications(request)
	}
	return err
}

// UpdateAllocation reports asks, allocations and releases. It never waits.
func (r *Remote) UpdateAllocation(request *si.AllocationRequest) error {
	shim, err := r.registered()
	if err != nil {
		return err
	}
	for _, allocation := range request.GetAllocations() {
		if r.dependents.add(allocation.GetAllocationKey()) {
			if allocation.AllocationTags == nil {
				allocation.AllocationTags = map[string]string{}
			}
			allocation.AllocationTags[kornel.TagDependsOnPlacements] = "true"
		}
	}
	for _, release := range request.GetReleases().GetAllocationsToRelease() {
		r.unconfirmed.forget(release.GetAllocationKey())
		r.dependents.forget(release.GetAllocationKey())
	}
	shim.UpdateAllocations(request)
	return nil
}

// UpdateConfiguration puts a configuration into force, or returns what is wrong with it. While the core cannot be reached,
// it is kept for the next registration.
func (r *Remote) UpdateConfiguration(request *si.UpdateConfigurationRequest) error {
	shim, err := r.registered()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, configurationTimeout)
	defer cancel()
	return shim.UpdateConfiguration(ctx, request.GetConfig(), request.GetExtraConfig())
}

// Unconfirmed returns the releases for which the core waits until the shim has stopped the pods.
func (r *Remote) Unconfirmed() []*si.AllocationRelease { return r.unconfirmed.list() }

// Reported returns the keys of all pods that the shim has reported and that the core has not dropped.
func (r *Remote) Reported() map[string]bool { return r.dependents.reported() }

// Repeat hands a release that the core waits for to the shim once more.
func (r *Remote) Repeat(release *si.AllocationRelease) {
	r.mu.Lock()
	callback := r.callback
	r.mu.Unlock()
	if callback == nil {
		return
	}
	if err := callback.UpdateAllocation(&si.AllocationResponse{Released: []*si.AllocationRelease{release}}); err != nil {
		r.options.Logger.Error("the shim did not take over a decision", "about", "allocations", "error", err)
	}
}

// NoteRepair counts a pod or release that had to be handed to the shim again.
func (r *Remote) NoteRepair() { r.counts.repairs.Add(1) }

// Pause ends the session with the core until [Remote.Resume]: nothing is scheduled, and another shim may take over. The
// core keeps its state.
func (r *Remote) Pause() {
	r.mu.Lock()
	r.paused = true
	shim := r.shim
	r.mu.Unlock()
	if shim != nil {
		ctx, cancel := context.WithTimeout(r.ctx, stopTimeout)
		defer cancel()
		shim.Pause(ctx)
	}
}

// Resume registers again after [Remote.Pause], and reports everything to the core.
func (r *Remote) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = false
	if r.shim != nil {
		r.shim.Resume()
	}
}

// Stop sends what is queued and ends the connection, also while a registration still waits for the core. The core keeps its
// state.
func (r *Remote) Stop() {
	r.cancel()
	r.mu.Lock()
	shim, client := r.shim, r.client
	r.shim, r.client = nil, nil
	r.mu.Unlock()
	if shim != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = shim.Close(ctx)
		_ = client.Close()
	}
	r.endOnce.Do(func() { close(r.ended) })
}

// Done returns a channel that is closed when nothing will be scheduled any more: after [Remote.Stop], or because another
// shim has registered in this one's place.
func (r *Remote) Done() <-chan struct{} { return r.ended }

// Err returns why nothing will be scheduled any more; nil after [Remote.Stop].
func (r *Remote) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shim == nil {
		return nil
	}
	return r.shim.Err()
}

// Status returns the state of the connection; the second value is false before the shim has registered.
func (r *Remote) Status() (kornel.ShimStatus, bool) {
	shim, err := r.registered()
	if err != nil {
		return kornel.ShimStatus{}, false
	}
	return shim.Status(), true
}

func (r *Remote) registered() (*kornel.Shim, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shim == nil {
		return nil, errNotRegistered
	}
	return r.shim, nil
}

// decisions hands messages of the core to the shim.
type decisions struct {
	callback    api.ResourceManagerCallback
	dependents  *dependents
	unconfirmed *unconfirmed
	acknowledge func(...*kornelv1.PlacementKey)
	counts      *counts
	logger      *slog.Logger
}

// receive hands on one thing that the core says. Each goes alone, because the shim drops the rest of a message at the first
// allocation that it cannot take over.
func (d *decisions) receive(update kornel.Update) {
	switch update := update.(type) {
	case kornel.NodeAccepted:
		d.tellNode(&si.NodeResponse{Accepted: []*si.AcceptedNode{{NodeID: update.NodeID}}})
	case kornel.NodeRejected:
		d.tellNode(&si.NodeResponse{Rejected: []*si.RejectedNode{{NodeID: update.NodeID, Reason: update.Reason}}})
	case kornel.ApplicationAccepted:
		d.tellApplication(&si.ApplicationResponse{Accepted: []*si.AcceptedApplication{{ApplicationID: update.ApplicationID}}})
	case kornel.ApplicationRejected:
		d.counts.applicationsRejected.Add(1)
		d.tellApplication(&si.ApplicationResponse{Rejected: []*si.RejectedApplication{{
			ApplicationID: update.ApplicationID, Reason: ShowReason(update.Reason),
		}}})
	case kornel.ApplicationUpdated:
		d.tellApplication(&si.ApplicationResponse{Updated: []*si.UpdatedApplication{{
			ApplicationID: update.ApplicationID, State: update.State, StateTransitionTimestamp: update.AtNs, Message: update.Message,
		}}})
	case kornel.Allocated:
		d.place(update.Message)
	case kornel.Released:
		release := kornel.ReleaseOf(update.ApplicationID, update.Key, update.Termination)
		release.Message = update.Message
		d.unconfirmed.note(release)
		if update.Termination == si.TerminationType_STOPPED_BY_RM {
			d.dependents.forget(update.Key) // with its node, for instance
		}
		d.tellAllocation(&si.AllocationResponse{Released: []*si.AllocationRelease{release}})
		d.counts.released.Add(1)
	case kornel.AskRejected:
		d.tellAllocation(&si.AllocationResponse{RejectedAllocations: []*si.RejectedAllocation{{
			AllocationKey: update.Key, ApplicationID: update.ApplicationID, Reason: update.Reason,
		}}})
	}
}

// place hands on a placement. Once the shim has taken it over, its predicates take it into account. It is acknowledged then,
// so that the core asks about the next pod that depends on where others run.
func (d *decisions) place(placed *si.Allocation) {
	d.tellAllocation(&si.AllocationResponse{New: []*si.Allocation{placed}})
	d.dependents.settle(placed.GetAllocationKey())
	if d.dependents.mayDepend(placed.GetAllocationKey()) {
		d.acknowledge(&kornelv1.PlacementKey{
			Partition: placed.GetPartitionName(), AllocationKey: placed.GetAllocationKey(), NodeId: placed.GetNodeID(),
		})
	}
	d.counts.placed.Add(1)
}

func (d *decisions) tellNode(response *si.NodeResponse) {
	d.report("nodes", d.callback.UpdateNode(response))
}

func (d *decisions) tellApplication(response *si.ApplicationResponse) {
	d.report("applications", d.callback.UpdateApplication(response))
}

func (d *decisions) tellAllocation(response *si.AllocationResponse) {
	d.report("allocations", d.callback.UpdateAllocation(response))
}

func (d *decisions) report(what string, err error) {
	if err != nil {
		d.logger.Error("the shim did not take over a decision", "about", what, "error", err)
	}
}

// answers puts the core's questions to the shim.
type answers struct {
	callback   api.ResourceManagerCallback
	tell       func(*si.UpdateContainerSchedulingStateRequest)
	dependents *dependents
	counts     *counts
}

func (a *answers) callbacks() kornel.Callbacks {
	states := &states{tell: a.tell}
	callbacks := kornel.Callbacks{
		Timeout:    callbackTimeout,
		Predicates: a.predicates,
		PreemptionPredicates: func(_ context.Context, question *kornelv1.PreemptionPredicatesQuestion) *si.PreemptionPredicatesResponse {
			a.counts.preemptionQuestions.Add(1)
			if a.dependents.hasClaims(question.GetArguments().GetAllocationKey()) {
				return &si.PreemptionPredicatesResponse{Index: -1}
			}
			return a.callback.PreemptionPredicates(question.GetArguments())
		},
		// These two functions call the API server, which may be slow; what comes after them must not wait.
		SchedulingState: func(_ context.Context, state *si.UpdateContainerSchedulingStateRequest) {
			states.put(state)
		},
		Events: func(_ context.Context, events []*si.EventRecord) {
			go a.callback.SendEvent(events)
			for _, event := range events {
				if event.GetType() == si.EventRecord_REQUEST {
					states.put(&si.UpdateContainerSchedulingStateRequest{
						ApplicationID: event.GetReferenceID(), AllocationKey: event.GetObjectID(), Reason: event.GetMessage(),
						State: si.UpdateContainerSchedulingStateRequest_SKIPPED,
					})
				}
			}
		},
	}
	if plugin, ok := a.callback.(api.StateDumpPlugin); ok {
		callbacks.StateDump = func(context.Context) (string, error) { return plugin.GetStateDump() }
	}
	return callbacks
}

// states hands on the scheduling states of asks, one at a time and the last one of each ask last.
type states struct {
	tell func(*si.UpdateContainerSchedulingStateRequest)

	mu      sync.Mutex
	running bool
	order   []string
	waiting map[string]*si.UpdateContainerSchedulingStateRequest
}

// put never waits. A newer state of an ask replaces one that still waits, so at most one state waits for each ask. That more
// nodes would help is not forgotten for a newer reason.
func (s *states) put(state *si.UpdateContainerSchedulingStateRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := state.GetAllocationKey()
	if s.waiting == nil {
		s.waiting = map[string]*si.UpdateContainerSchedulingStateRequest{}
	}
	if before := s.waiting[key]; before == nil {
		s.order = append(s.order, key)
	} else if before.GetState() == si.UpdateContainerSchedulingStateRequest_FAILED {
		state.State = before.GetState()
	}
	s.waiting[key] = state
	if !s.running {
		s.running = true
		go s.run()
	}
}

func (s *states) run() {
	for {
		s.mu.Lock()
		if len(s.order) == 0 {
			s.running, s.order = false, nil
			s.mu.Unlock()
			return
		}
		key := s.order[0]
		s.order = s.order[1:]
		state := s.waiting[key]
		delete(s.waiting, key)
		s.mu.Unlock()
		s.tell(state)
	}
}

// predicates judges on which nodes a pod may run, and gives the shim's reason for the others.
func (a *answers) predicates(ctx context.Context, question *kornelv1.PredicatesQuestion) kornel.Judgement {
	a.counts.questions.Add(1)
	key := question.GetAllocationKey()
	a.dependents.settle(key)
	if question.GetDependent() {
		a.counts.dependentQuestions.Add(1)
		a.dependents.await(ctx)
	} else if question.GetAllocate() && !a.dependents.depends(key) {
		a.dependents.promise(key)
	}
	judged := kornel.Judgement{Refusals: make(map[string]string)}
	hasClaims := a.dependents.hasClaims(key)
	for _, node := range question.GetNodeIds() {
		reason := claimsRefusal
		if !hasClaims {
			reason = a.judge(question, node)
		}
		if reason != "" {
			judged.Refusals[node] = reason
		}
		// A dependent pod is placed on the first node that is not refused, so the others need no judgement. For any other pod
		// every node is judged, because a further question would cost more.
		if reason == "" && question.GetDependent() || ctx.Err() != nil {
			break
		}
	}
	// Looked up for each question and at its end, because a rule may come after the pod that it is about was submitted. From
	// then on the core sees to it that no other such pod is judged before this one is in place.
	judged.DependsOnPlacements = a.dependents.depends(key)
	if len(judged.Refusals) == len(question.GetNodeIds()) || judged.DependsOnPlacements || ctx.Err() != nil {
		a.dependents.settle(key)
	}
	return judged
}

func (a *answers) judge(question *kornelv1.PredicatesQuestion, node string) string {
	err := a.callback.Predicates(&si.PredicatesArgs{
		AllocationKey: question.GetAllocationKey(), NodeID: node, Allocate: question.GetAllocate(),
	})
	a.counts.judgements.Add(1)
	if err == nil {
		return ""
	}
	a.counts.refusals.Add(1)
	if text := err.Error(); text != "" {
		return text
	}
	return "refused"
}
