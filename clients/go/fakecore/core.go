// Package fakecore is a scripted core for tests of shims: it serves si.v1 and the callbacks in the same process, accepts
// what is reported, places asks on the first open node, and records in order what it received. It ignores resources.
package fakecore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/common"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"kornel.internal/clients/go/kornelv1"
)

// Address is what a client is given as the address of the core.
const Address = "passthrough:///fakecore"

// A Core is one scripted core. Its functions may be set before [Core.Serve].
type Core struct {
	// RefuseConfig returns why a configuration is refused, or nil.
	RefuseConfig func(config string) error
	// HoldRegistrations is how many registrations are refused, each for a millisecond, as if another session held the core.
	HoldRegistrations int
	// RefuseNode, RefuseApplication and RefuseAllocation return why an entry is refused; empty: it is accepted.
	RefuseNode, RefuseApplication, RefuseAllocation func(id string) string
	// HoldAsks leaves asks unplaced until [Core.Place] is called for them.
	HoldAsks bool
	// ServerOptions are those of gRPC.
	ServerOptions []grpc.ServerOption
	// NamesPlacements says that questions name the placement to wait for.
	NamesPlacements bool
	// WithoutCallbacks leaves callbacks unimplemented.
	WithoutCallbacks bool
	// Resumes has streams go on exactly where they broke (kornel-resume).
	Resumes bool

	mu         sync.Mutex
	changed    chan struct{}
	listener   *bufconn.Listener
	server     *grpc.Server
	log        []string
	registered bool
	config     string
	nodes      map[string]bool // true if the node is open
	nodeOrder  []string
	apps       map[string]bool
	asks       []*si.Allocation
	running    map[string]*si.Allocation
	lines      map[string]*line
	backlog    map[string][]any
	peer       *peer
	questions  int64
	sessions   []string
	deaf, mute bool
	// epoch, applied, sent and told belong to [Core.Resumes]: the number of the registration, how many entries of each kind
	// were applied, what was sent, and how much of it the shim says that it has.
	epoch   int
	applied map[string]uint64
	sent    map[string][]proto.Message
	told    *kornelv1.StreamCounts
	// standsBy and leader belong to [Core.StandBy], leads to [Core.Lead].
	standsBy bool
	leader   string
	leads    uint64
}

// Sessions returns the names of sessions that calls have come with, each once.
func (c *Core) Sessions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sessions)
}

func (c *Core) noteSession(ctx context.Context) {
	found, _ := metadata.FromIncomingContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.Join(found.Get("kornel-session"), ",")
	if !slices.Contains(c.sessions, name) {
		c.sessions = append(c.sessions, name)
	}
}

// A line is one open stream, with a queue of the messages to send and of its end.
type line struct {
	messages chan any // a message or an error
}

// A peer is one attached stream of callbacks.
type peer struct {
	line    *line
	answers map[int64]chan *kornelv1.AttachRequest
}

// New returns a core that does not serve yet.
func New() *Core {
	c := &Core{changed: make(chan struct{})}
	c.forget()
	return c
}

func (c *Core) forget() {
	c.nodes, c.nodeOrder = map[string]bool{}, nil
	c.apps, c.asks, c.running = map[string]bool{}, nil, map[string]*si.Allocation{}
	c.backlog = map[string][]any{}
	c.applied, c.sent = map[string]uint64{}, map[string][]proto.Message{}
	if c.lines == nil {
		c.lines = map[string]*line{}
	}
}

// Serve begins to serve. After [Core.Stop] the core still has its state.
func (c *Core) Serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listener = bufconn.Listen(1 << 20)
	c.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			c.noteSession(ctx)
			if err := c.refer(info.FullMethod, func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) }); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			c.noteSession(stream.Context())
			if err := c.refer(info.FullMethod, stream.SetTrailer); err != nil {
				return err
			}
			return handle(server, stream)
		}),
	}, c.ServerOptions...)...)
	si.RegisterSchedulerServer(c.server, &scheduler{core: c})
	if !c.WithoutCallbacks {
		kornelv1.RegisterCallbackServiceServer(c.server, &callbacks{core: c})
	}
	kornelv1.RegisterConfigurationServiceServer(c.server, &configuration{core: c})
	kornelv1.RegisterManagerServiceServer(c.server, &manager{core: c})
	health.RegisterHealthServer(c.server, &standing{core: c})
	go func(server *grpc.Server, listener net.Listener) { _ = server.Serve(listener) }(c.server, c.listener)
}

// Stop cuts every connection. The core keeps its state.
func (c *Core) Stop() {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	server.Stop()
}

// Restart stops the core and serves again without any state.
func (c *Core) Restart() {
	c.Stop()
	c.mu.Lock()
	c.forget()
	c.registered = false
	c.note("restarted")
	c.mu.Unlock()
	c.Serve()
}

// Block makes the core read entries without applying them (deaf), or decide without sending its decisions (mute), as if it
// were killed before it recorded or sent them. With [Core.Resumes], the next stream repeats these entries and decisions.
func (c *Core) Block(deaf, mute bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf, c.mute = deaf, mute
}

// Received returns how many entries of each kind the shim has received, as it said last; nil: it has said nothing yet.
func (c *Core) Received() *kornelv1.StreamCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// LoseEntries makes the core say that fewer entries were applied than it said before, as if it had lost part of its
// journal.
func (c *Core) LoseEntries(kind string, count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied[kind] -= count
}

// Dialer connects a client to the core, wherever its address points.
func (c *Core) Dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) })
}

func (c *Core) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	listener := c.listener
	c.mu.Unlock()
	return listener.DialContext(ctx)
}

// EndStreams ends the three streams with a status error. The core keeps its state unless the error is FAILED_PRECONDITION.
func (c *Core) EndStreams(end error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if status.Code(end) == codes.FailedPrecondition {
		c.forget()
		c.registered = false
	}
	for kind, each := range c.lines {
		delete(c.lines, kind)
		each.messages <- end
	}
}

// Log returns what the core has received so far, in order.
func (c *Core) Log() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// Since returns what the core has received from the last entry that begins with prefix on.
func (c *Core) Since(prefix string) []string {
	log := c.Log()
	for i := len(log) - 1; i >= 0; i-- {
		if strings.HasPrefix(log[i], prefix) {
			return log[i:]
		}
	}
	return nil
}

// WaitFor waits until the core has received all of the entries, and tells whether that happened within half a minute.
func (c *Core) WaitFor(entries ...string) bool {
	return c.Await(func(log []string) bool {
		for _, entry := range entries {
			if !slices.Contains(log, entry) {
				return false
			}
		}
		return true
	})
}

// Await waits until what the core has received satisfies a condition, and tells whether it did within half a minute.
func (c *Core) Await(condition func(log []string) bool) bool {
	limit := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		log, changed := slices.Clip(c.log), c.changed // entries are only appended
		c.mu.Unlock()
		if condition(log) {
			return true
		}
		select {
		case <-changed:
		case <-limit:
			return false
		}
	}
}

// Config returns the configuration in force.
func (c *Core) Config() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

// Place places an ask that waits on a node.
func (c *Core) Place(key, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, ask := range c.asks {
		if ask.GetAllocationKey() == key {
			c.asks = slices.Delete(c.asks, i, i+1)
			c.place(ask, node)
			return
		}
	}
}

// DemandRelease asks the shim for the release of a running allocation.
func (c *Core) DemandRelease(key string, termination si.TerminationType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	release := &si.AllocationRelease{AllocationKey: key, TerminationType: termination}
	if known := c.running[key]; known != nil {
		release.ApplicationID = known.GetApplicationID()
	}
	c.send("UpdateAllocation", &si.AllocationResponse{Released: []*si.AllocationRelease{release}})
}

// SendState sends a state of an application.
func (c *Core) SendState(application, state, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	updated := &si.UpdatedApplication{ApplicationID: application, State: state, Message: message}
	c.send("UpdateApplication", &si.ApplicationResponse{Updated: []*si.UpdatedApplication{updated}})
}

// Tell sends a message of callbacks that wants no answer.
func (c *Core) Tell(message *kornelv1.AttachResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer != nil {
		c.peer.line.messages <- message
	}
}

// Ask asks the questions of a message at once, and returns a channel for the answer to each, in their order. The core gives
// them their numbers.
func (c *Core) Ask(message *kornelv1.AttachResponse) []<-chan *kornelv1.AttachRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var waiting []<-chan *kornelv1.AttachRequest
	number := func() int64 {
		c.questions++
		answer := make(chan *kornelv1.AttachRequest, 1)
		c.peer.answers[c.questions] = answer
		waiting = append(waiting, answer)
		return c.questions
	}
	for _, question := range message.GetPredicates() {
		question.QuestionId = number()
	}
	for _, question := range message.GetPreemptionPredicates() {
		question.QuestionId = number()
	}
	if question := message.GetStateDump(); question != nil {
		question.QuestionId = number()
	}
	c.peer.line.messages <- message
	return waiting
}

func (c *Core) note(format string, values ...any) {
	c.log = append(c.log, fmt.Sprintf(format, values...))
	close(c.changed)
	c.changed = make(chan struct{})
}

// send sends a message on the open stream of a kind, or keeps it for the next one.
func (c *Core) send(kind string, message proto.Message) {
	if c.Resumes {
		c.sent[kind] = append(c.sent[kind], message)
		if open := c.lines[kind]; open != nil && !c.mute {
			open.messages <- message
		}
		return
	}
	if open := c.lines[kind]; open != nil {
		open.messages <- message
		return
	}
	c.backlog[kind] = append(c.backlog[kind], message)
}

func (c *Core) place(ask *si.Allocation, node string) {
	placed := &si.Allocation{
		AllocationKey: ask.GetAllocationKey(), ApplicationID: ask.GetApplicationID(), NodeID: node,
		ResourcePerAlloc: ask.GetResourcePerAlloc(), TaskGroupName: ask.GetTaskGroupName(), Placeholder: ask.GetPlaceholder(),
	}
	c.running[placed.GetAllocationKey()] = placed
	c.send("UpdateAllocation", &si.AllocationResponse{New: []*si.Allocation{placed}})
}

func (c *Core) placeAll() {
	if c.HoldAsks {
		return
	}
	for _, node := range c.nodeOrder {
		if c.nodes[node] {
			for _, ask := range c.asks {
				c.place(ask, node)
			}
			c.asks = nil
			return
		}
	}
}

func refusal(rule func(string) string, id string) string {
	if rule == nil {
		return ""
	}
	return rule(id)
}

func (c *Core) takeNodes(request *si.NodeRequest) {
	response := &si.NodeResponse{}
	for _, info := range request.GetNodes() {
		id := info.GetNodeID()
		c.note("node %s %s", id, info.GetAction())
		_, known := c.nodes[id]
		switch action := info.GetAction(); action {
		case si.NodeInfo_CREATE, si.NodeInfo_CREATE_DRAIN:
			reason := refusal(c.RefuseNode, id)
			if known {
				reason = "node-exists: the node is there already"
			}
			if reason != "" {
				response.Rejected = append(response.Rejected, &si.RejectedNode{NodeID: id, Reason: reason})
				continue
			}
			c.nodes[id] = action == si.NodeInfo_CREATE
			c.nodeOrder = append(c.nodeOrder, id)
			response.Accepted = append(response.Accepted, &si.AcceptedNode{NodeID: id})
		case si.NodeInfo_DRAIN_NODE, si.NodeInfo_DRAIN_TO_SCHEDULABLE:
			if known {
				c.nodes[id] = action == si.NodeInfo_DRAIN_TO_SCHEDULABLE
			}
		case si.NodeInfo_DECOMISSION:
			delete(c.nodes, id)
			c.nodeOrder = slices.DeleteFunc(c.nodeOrder, func(each string) bool { return each == id })
		}
	}
	if len(response.GetAccepted())+len(response.GetRejected()) > 0 {
		c.send("UpdateNode", response)
	}
	c.placeAll()
}

func (c *Core) takeApplications(request *si.ApplicationRequest) {
	response := &si.ApplicationResponse{}
	for _, added := range request.GetNew() {
		id := added.GetApplicationID()
		forced := ""
		if added.GetTags()[common.AppTagCreateForce] == "true" {
			forced = " forced"
		}
		c.note("application %s%s", id, forced)
		if reason := refusal(c.RefuseApplication, id); reason != "" {
			response.Rejected = append(response.Rejected, &si.RejectedApplication{ApplicationID: id, Reason: reason})
			continue
		}
		c.apps[id] = true
		response.Accepted = append(response.Accepted, &si.AcceptedApplication{ApplicationID: id})
	}
	for _, removed := range request.GetRemove() {
		c.note("remove %s", removed.GetApplicationID())
		delete(c.apps, removed.GetApplicationID())
	}
	if len(response.GetAccepted())+len(response.GetRejected()) > 0 {
		c.send("UpdateApplication", response)
	}
}

func (c *Core) takeAllocations(request *si.AllocationRequest) {
	for _, each := range request.GetAllocations() {
		key := each.GetAllocationKey()
		reason := refusal(c.RefuseAllocation, key)
		_, foreign := each.GetAllocationTags()[common.Foreign]
		switch {
		case foreign:
			c.note("foreign %s on %s", key, each.GetNodeID())
			continue
		case each.GetNodeID() != "":
			c.note("allocation %s on %s", key, each.GetNodeID())
		default:
			c.note("ask %s", key)
		}
		if !c.apps[each.GetApplicationID()] {
			reason = "application-not-found: unknown"
		}
		switch {
		case reason != "":
			rejected := &si.RejectedAllocation{AllocationKey: key, ApplicationID: each.GetApplicationID(), Reason: reason}
			c.send("UpdateAllocation", &si.AllocationResponse{RejectedAllocations: []*si.RejectedAllocation{rejected}})
		case c.running[key] != nil:
		case each.GetNodeID() != "":
			c.place(each, each.GetNodeID())
		default:
			c.asks = append(c.asks, each)
		}
	}
	for _, release := range request.GetReleases().GetAllocationsToRelease() {
		key := release.GetAllocationKey()
		c.note("release %s %s", key, release.GetTerminationType())
		known := c.running[key]
		delete(c.running, key)
		c.asks = slices.DeleteFunc(c.asks, func(ask *si.Allocation) bool { return ask.GetAllocationKey() == key })
		if known != nil && release.GetTerminationType() == si.TerminationType_STOPPED_BY_RM {
			c.send("UpdateAllocation", &si.AllocationResponse{Released: []*si.AllocationRelease{release}})
		}
	}
	c.placeAll()
}

// EndCallbacks ends the stream of callbacks with a status error.
func (c *Core) EndCallbacks(end error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer != nil {
		c.peer.line.messages <- end
	}
}
