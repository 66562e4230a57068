package fakecore

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// AddressOf returns the address of the core with a number, for a client that has the [Dialer] of several.
func AddressOf(number int) string { return fmt.Sprint("passthrough:///core-", number) }

// Dialer connects a client to several cores, each at its [AddressOf].
func Dialer(cores ...*Core) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		for number, core := range cores {
			if strings.HasSuffix(AddressOf(number), "/"+address) {
				return core.dial(ctx)
			}
		}
		return nil, fmt.Errorf("there is no core at %s", address)
	})
}

// StandBy makes the core refuse its callers because another core leads, at an address; empty: at none. The streams that are
// open end.
func (c *Core) StandBy(leader string) {
	c.mu.Lock()
	c.standsBy, c.leader = true, leader
	c.mu.Unlock()
	c.EndStreams(status.Error(codes.Unavailable, "this core stands by"))
}

// Lead makes the core lead in an epoch, with all that another one had, if there is one. The other one may go on to believe
// that it leads.
func (c *Core) Lead(epoch uint64, from *Core) {
	if from != nil {
		from.mu.Lock()
		defer from.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standsBy, c.leader, c.leads = false, "", epoch
	if from == nil {
		return
	}
	c.registered, c.config, c.epoch, c.told = from.registered, from.config, from.epoch, from.told
	c.nodes, c.nodeOrder, c.apps = maps.Clone(from.nodes), slices.Clone(from.nodeOrder), maps.Clone(from.apps)
	c.asks, c.running = slices.Clone(from.asks), maps.Clone(from.running)
	c.applied, c.sent = maps.Clone(from.applied), maps.Clone(from.sent)
}

// refer returns the refusal of a call at a core that stands by, which names the leader.
func (c *Core) refer(method string, set func(metadata.MD)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.standsBy || strings.HasPrefix(method, "/grpc.health.") {
		return nil
	}
	c.note("referred %s", method[strings.LastIndexByte(method, '/')+1:])
	if c.leader != "" {
		set(metadata.Pairs("kornel-leader", c.leader))
	}
	return status.Error(codes.Unavailable, "this core stands by")
}

// A standing answers whether the core leads.
type standing struct {
	health.UnimplementedHealthServer
	core *Core
}

func (s *standing) Check(ctx context.Context, request *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	c := s.core
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case request.GetService() != "si.v1.Scheduler":
		return nil, status.Error(codes.NotFound, request.GetService())
	case c.standsBy:
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	case c.leads == 0:
		return nil, status.Error(codes.Unimplemented, "this core does not know of others")
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("kornel-epoch", fmt.Sprint(c.leads)))
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}
