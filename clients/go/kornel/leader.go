package kornel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// leaderKey is the entry of the trailing metadata in which a standby gives the leader's address.
	leaderKey = "kornel-leader"
	// epochKey is the entry of the trailing metadata in which a leader gives its epoch.
	epochKey = "kornel-epoch"
	// askedTimeout is the time within which a core has to answer whether it leads.
	askedTimeout = time.Second
	// lookPause is the pause between two rounds of questions to all addresses while no core leads.
	lookPause = 100 * time.Millisecond
	// watchPause is the pause between two rounds of questions to the other addresses while a core leads.
	watchPause = time.Second
	// mostNamed is how many addresses are remembered because a core named them; the oldest of them are forgotten.
	mostNamed = 8
)

// splitAddresses returns the addresses in address, which are separated by commas, each once.
func splitAddresses(address string) []string {
	var found []string
	for _, each := range strings.Split(address, ",") {
		if each = strings.TrimSpace(each); each != "" && !slices.Contains(found, each) {
			found = append(found, each)
		}
	}
	return found
}

// A leaderConnection is a connection to the leader of several cores that share a journal. One core leads and decides; the
// others stand by and refer their callers to it.
//
// It asks each address for the health of si.v1.Scheduler, which is SERVING only at the leader, and sends all calls there. It
// keeps asking the other addresses afterwards, because a leader that hangs does not end its calls, and another core may have
// taken over. Each leader has its own epoch; a core with an earlier epoch only believes that it still leads.
//
// With a single address, it is a connection to that core, whether it leads or not, until the core names another address.
type leaderConnection struct {
	dial   func(address string) (*grpc.ClientConn, error)
	limit  time.Duration // of the search for the leader that another core has named
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	// looking holds one token: one search at a time is enough.
	looking  chan struct{}
	watching sync.WaitGroup

	mu          sync.Mutex
	addresses   []string // those of the caller, then those that cores have named, the oldest first
	given       int      // the number of the caller's
	connections map[string]*grpc.ClientConn
	chosen      string
	epoch       uint64
	watched     bool
	reasons     map[string]string // why a core does not lead, as it said last
}

// newLeaderConnection connects to nothing yet. An error is about an address or the credentials for it.
func newLeaderConnection(addresses []string, limit time.Duration, logger *slog.Logger, dial func(string) (*grpc.ClientConn, error)) (*leaderConnection, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leaderConnection{
		dial:        dial,
		limit:       limit,
		logger:      logger,
		ctx:         ctx,
		cancel:      cancel,
		looking:     make(chan struct{}, 1),
		addresses:   addresses,
		given:       len(addresses),
		connections: map[string]*grpc.ClientConn{},
		chosen:      addresses[0],
		reasons:     map[string]string{},
	}
	for _, address := range addresses {
		if _, err := l.open(address); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	return l, nil
}

// open returns the connection to an address.
func (l *leaderConnection) open(address string) (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked(address)
}

func (l *leaderConnection) openLocked(address string) (*grpc.ClientConn, error) {
	if l.ctx.Err() != nil {
		return nil, status.Error(codes.Canceled, "the client is closed")
	}
	connection := l.connections[address]
	if connection == nil {
		made, err := l.dial(address)
		if err != nil {
			return nil, err
		}
		connection = made
		l.connections[address] = made
	}
	return connection, nil
}

// leader returns the connection to the core that was chosen last.
func (l *leaderConnection) leader() (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked(l.chosen)
}

// Invoke makes a unary call at the leader; once more if another core leads by then.
func (l *leaderConnection) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	connection, err := l.leader()
	if err != nil {
		return err
	}
	var trailer metadata.MD
	err = connection.Invoke(ctx, method, request, reply, append(slices.Clip(options), grpc.Trailer(&trailer))...)
	switch {
	case status.Code(err) == codes.Unavailable && l.noteLeader(trailer):
		limited, cancel := context.WithTimeout(ctx, l.limit)
		defer cancel()
		if l.find(limited) != nil {
			return err
		}
	case status.Code(err) == codes.Canceled && ctx.Err() == nil && l.hasLeft(connection):
		// Another core has come to lead meanwhile, and the connection was closed under the call.
	default:
		return err
	}
	if connection, err = l.leader(); err != nil {
		return err
	}
	return connection.Invoke(ctx, method, request, reply, options...)
}

// hasLeft tells whether a connection was closed because calls go to another core now.
func (l *leaderConnection) hasLeft(connection *grpc.ClientConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx.Err() == nil && l.connections[l.chosen] != connection
}

// NewStream opens a stream at the leader.
func (l *leaderConnection) NewStream(ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	connection, err := l.leader()
	if err != nil {
		return nil, err
	}
	opened, err := connection.NewStream(ctx, description, method, options...)
	if err != nil {
		return nil, err
	}
	return &referringStream{opened, l}, nil
}

// A referringStream notes the leader that a core names when it ends the stream.
type referringStream struct {
	grpc.ClientStream
	connection *leaderConnection
}

func (s *referringStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil {
		s.connection.noteLeader(s.Trailer())
	}
	return err
}

// noteLeader notes the leader's address from the trailing metadata of a call that a standby refused. It tells whether there
// is one.
func (l *leaderConnection) noteLeader(trailer metadata.MD) bool {
	named := trailer.Get(leaderKey)
	if len(named) == 0 || named[0] == "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.addresses[:l.given], named[0]) {
		return true
	}
	// Cores that are replaced often name a new address each time.
	kept := slices.DeleteFunc(slices.Clone(l.addresses[l.given:]), func(each string) bool { return each == named[0] })
	kept = append(kept, named[0])
	if len(kept) > mostNamed {
		oldest := slices.IndexFunc(kept, func(each string) bool { return each != l.chosen })
		kept = slices.Delete(kept, oldest, oldest+1)
	}
	l.addresses = slices.Concat(l.addresses[:l.given], kept)
	return true
}

// forget closes the connections to addresses that are no longer remembered.
func (l *leaderConnection) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for address, connection := range l.connections {
		if address != l.chosen && !slices.Contains(l.addresses, address) {
			_ = connection.Close()
			delete(l.connections, address)
		}
	}
	maps.DeleteFunc(l.reasons, func(address, _ string) bool { return !slices.Contains(l.addresses, address) })
}

// find waits until a core leads, and sends calls to it from then on. It returns [ErrConnectionLost] once ctx is done.
func (l *leaderConnection) find(ctx context.Context) error {
	select {
	case l.looking <- struct{}{}:
		defer func() { <-l.looking }()
	case <-ctx.Done():
		return l.lost()
	case <-l.ctx.Done():
		return ErrClosed
	}
	for {
		l.mu.Lock()
		addresses, epoch := l.addresses, l.epoch
		l.mu.Unlock()
		if len(addresses) == 1 {
			return l.findOnly(ctx, addresses[0])
		}
		if l.look(ctx, addresses, epoch) {
			l.watch()
			return nil
		}
		if l.ctx.Err() != nil {
			return ErrClosed
		}
		if sleep(ctx, lookPause) != nil {
			return l.lost()
		}
	}
}

// findOnly waits for a connection to the only core there is.
func (l *leaderConnection) findOnly(ctx context.Context, address string) error {
	for {
		connection, err := l.open(address)
		if err != nil {
			return ErrClosed
		}
		state := connection.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return ErrClosed
		case connectivity.Idle:
			connection.Connect()
		}
		if !connection.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%w: no connection to %s in time", ErrConnectionLost, address)
		}
	}
}

// explain returns why there is no connection to the only core there is, such as an authority that is not trusted. It makes
// a call, because gRPC reports the reason only to calls.
func (l *leaderConnection) explain(ctx context.Context) string {
	l.mu.Lock()
	several := len(l.addresses) > 1
	l.mu.Unlock()
	if several {
		return "" // The search has made such calls and reported the reasons.
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := l.NewStream(limited, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, si.Scheduler_UpdateNode_FullMethodName)
	if err == nil {
		return ""
	}
	return status.Convert(err).Message()
}

// lost returns the error for a search that found no leader in time.
func (l *leaderConnection) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.addresses) == 1 {
		return fmt.Errorf("%w: no connection to %s in time", ErrConnectionLost, l.addresses[0])
	}
	var said []string
	for _, address := range slices.Sorted(maps.Keys(l.reasons)) {
		said = append(said, address+": "+l.reasons[address])
	}
	return fmt.Errorf("%w: no core leads at %s (%s)", ErrConnectionLost, strings.Join(l.addresses, ", "), strings.Join(said, "; "))
}

// watch begins to ask the other cores whether one of them has taken over.
func (l *leaderConnection) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched || l.ctx.Err() != nil {
		return
	}
	l.watched = true
	l.watching.Add(1)
	go func() {
		defer l.watching.Done()
		for sleep(l.ctx, watchPause) == nil {
			l.mu.Lock()
			chosen, epoch := l.chosen, l.epoch
			others := slices.DeleteFunc(slices.Clone(l.addresses), func(each string) bool { return each == chosen })
			l.mu.Unlock()
			l.look(l.ctx, others, epoch+1)
		}
	}()
}

// A standing is what a core says about itself.
type standing struct {
	address string
	leads   bool
	epoch   uint64
	reason  string
}

// look asks all addresses at once, and chooses the first core to answer that leads in the epoch least or later. It tells
// whether there is one.
func (l *leaderConnection) look(ctx context.Context, addresses []string, least uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	defer l.forget()
	answers := make(chan standing, len(addresses))
	for _, address := range addresses {
		go func() { answers <- l.ask(ctx, address) }()
	}
	for range addresses {
		if l.choose(<-answers, least) {
			return true
		}
	}
	return false
}

// ask asks the core at an address whether it leads.
func (l *leaderConnection) ask(ctx context.Context, address string) standing {
	connection, err := l.open(address)
	if err != nil {
		return standing{address: address, reason: err.Error()}
	}
	var trailer metadata.MD
	request := &health.HealthCheckRequest{Service: si.Scheduler_ServiceDesc.ServiceName}
	answer, err := health.NewHealthClient(connection).Check(ctx, request, grpc.Trailer(&trailer))
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.NotFound:
		// A core without the health service does not know of leaders either, so it counts as leading.
		return standing{address: address, leads: true, reason: "does not say whether it leads"}
	default:
		return standing{address: address, reason: status.Convert(err).Message()}
	}
	if answer.GetStatus() != health.HealthCheckResponse_SERVING {
		return standing{address: address, reason: "stands by"}
	}
	epoch, _ := strconv.ParseUint(strings.Join(trailer.Get(epochKey), ""), 10, 63)
	return standing{address: address, leads: true, epoch: epoch, reason: fmt.Sprintf("leads in epoch %d, which is over", epoch)}
}

// choose sends calls to a core from now on if it leads in the epoch least or later, and in no earlier one than the core that
// is chosen. It tells whether that is so.
func (l *leaderConnection) choose(found standing, least uint64) bool {
	l.mu.Lock()
	l.reasons[found.address] = found.reason
	if !found.leads || found.epoch < max(least, l.epoch) || l.ctx.Err() != nil {
		l.mu.Unlock()
		return false
	}
	l.epoch = found.epoch
	before := l.chosen
	l.chosen = found.address
	var unused *grpc.ClientConn
	if before != found.address {
		unused = l.connections[before]
		delete(l.connections, before)
	}
	l.mu.Unlock()
	if unused != nil {
		l.logger.Info("another core leads", "address", found.address, "before", before)
		// Otherwise calls to a core that hangs would never end. Calls to a standby have ended already.
		_ = unused.Close()
	}
	return true
}

// Close closes the connections to all cores.
func (l *leaderConnection) Close() error {
	l.cancel()
	l.mu.Lock()
	var failures []error
	for address, connection := range l.connections {
		failures = append(failures, connection.Close())
		delete(l.connections, address)
	}
	l.mu.Unlock()
	l.watching.Wait()
	return errors.Join(failures...)
}
