// Serves YuniKorn's core over si.v1, so that the conformance kit can judge a core that is not Kornel's.
//
// The core is an unmodified dependency, called by its public interface. This program only carries messages: it keeps
// responses until a stream takes them, and gives errors the status that the contract has for them. It serves nothing of
// kornel.v1, so every question of the core counts as a yes.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/apache/yunikorn-core/pkg/entrypoint"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const largestMessage = 64 << 20

// A server serves one resource manager at a time, as the core does, and each registration has a core that has just started:
// v1.8.0 blocks where a manager registers again.
type server struct {
	si.UnimplementedSchedulerServer

	mu      sync.Mutex
	core    api.SchedulerAPI
	current *manager
}

// A manager hears what the core says, and keeps it for the streams.
type manager struct {
	id           string
	nodes        mailbox[*si.NodeResponse]
	applications mailbox[*si.ApplicationResponse]
	allocations  mailbox[*si.AllocationResponse]
}

// clear drops what no stream has taken.
func (m *manager) clear() {
	m.nodes.clear()
	m.applications.clear()
	m.allocations.clear()
}

func (m *manager) UpdateNode(response *si.NodeResponse) error {
	m.nodes.put(response)
	return nil
}

func (m *manager) UpdateApplication(response *si.ApplicationResponse) error {
	m.applications.put(response)
	return nil
}

func (m *manager) UpdateAllocation(response *si.AllocationResponse) error {
	m.allocations.put(response)
	return nil
}

func (m *manager) Predicates(*si.PredicatesArgs) error { return nil }

func (m *manager) PreemptionPredicates(args *si.PreemptionPredicatesArgs) *si.PreemptionPredicatesResponse {
	return &si.PreemptionPredicatesResponse{Success: true, Index: args.StartIndex}
}

func (m *manager) SendEvent([]*si.EventRecord) {}

func (m *manager) UpdateContainerSchedulingState(*si.UpdateContainerSchedulingStateRequest) {}

// registered returns the manager of that ID with the core that serves it, or an error if it is not registered.
func (s *server) registered(id string) (*manager, api.SchedulerAPI, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.id != id {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "resource manager %q is not registered", id)
	}
	return s.current, s.core, nil
}

func (s *server) RegisterResourceManager(_ context.Context, request *si.RegisterResourceManagerRequest) (*si.RegisterResourceManagerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.RmID == "" {
		return nil, status.Error(codes.InvalidArgument, "rmID is empty")
	}
	if s.current != nil && s.current.id != request.RmID {
		return nil, status.Errorf(codes.FailedPrecondition, "resource manager %q is registered", s.current.id)
	}
	if s.core != nil {
		s.core.Stop()
	}
	s.core = entrypoint.StartAllServices().RMProxy
	made := s.current
	if made == nil {
		made = &manager{id: request.RmID}
	}
	made.clear()
	if request.ExtraConfig == nil {
		request.ExtraConfig = map[string]string{}
	}
	request.ExtraConfig["log.level"] = "ERROR"
	response, err := s.core.RegisterResourceManager(request, made)
	if err != nil {
		s.current = nil
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.current = made
	return response, nil
}

func (s *server) UpdateNode(stream si.Scheduler_UpdateNodeServer) error {
	return carry(s, stream, api.SchedulerAPI.UpdateNode, func(m *manager) *mailbox[*si.NodeResponse] { return &m.nodes })
}

func (s *server) UpdateApplication(stream si.Scheduler_UpdateApplicationServer) error {
	return carry(s, stream, api.SchedulerAPI.UpdateApplication, func(m *manager) *mailbox[*si.ApplicationResponse] { return &m.applications })
}

func (s *server) UpdateAllocation(stream si.Scheduler_UpdateAllocationServer) error {
	return carry(s, stream, api.SchedulerAPI.UpdateAllocation, func(m *manager) *mailbox[*si.AllocationResponse] { return &m.allocations })
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	served := &server{}
	program := grpc.NewServer(grpc.MaxRecvMsgSize(largestMessage), grpc.MaxSendMsgSize(largestMessage))
	si.RegisterSchedulerServer(program, served)
	fmt.Println(listener.Addr())
	if err := program.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
