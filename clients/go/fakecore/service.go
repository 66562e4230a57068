package fakecore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"kornel.internal/clients/go/kornelv1"
)

// roomOfLine is how many messages may wait on a stream: more than any test sends.
const roomOfLine = 10_000

type scheduler struct {
	si.UnimplementedSchedulerServer
	core *Core
}

func (s *scheduler) RegisterResourceManager(ctx context.Context, request *si.RegisterResourceManagerRequest) (*si.RegisterResourceManagerResponse, error) {
	c := s.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked, _ := metadata.FromIncomingContext(ctx); len(asked.Get("kornel-lease")) > 0 && c.HoldRegistrations > 0 {
		c.HoldRegistrations--
		c.note("held %s", asked.Get("kornel-lease")[0])
		_ = grpc.SetTrailer(ctx, metadata.Pairs("kornel-retry-after-ms", "1"))
		return nil, status.Error(codes.FailedPrecondition, "held: another session has the core")
	}
	if err := c.judgeConfig(request.GetConfig()); err != nil {
		c.note("refused %s", request.GetConfig())
		return nil, err
	}
	c.forget()
	c.registered = true
	c.config = request.GetConfig()
	c.note("register %s", request.GetRmID())
	if c.Resumes {
		c.epoch++
		_ = grpc.SetHeader(ctx, metadata.Pairs(resumeKey, fmt.Sprint("epoch-", c.epoch)))
	}
	return &si.RegisterResourceManagerResponse{}, nil
}

func (c *Core) judgeConfig(config string) error {
	if c.RefuseConfig == nil {
		return nil
	}
	return c.RefuseConfig(config)
}

func (s *scheduler) UpdateNode(stream si.Scheduler_UpdateNodeServer) error {
	return serve(s.core, "UpdateNode", stream, stream.Recv, stream.Send, s.core.takeNodes)
}

func (s *scheduler) UpdateApplication(stream si.Scheduler_UpdateApplicationServer) error {
	return serve(s.core, "UpdateApplication", stream, stream.Recv, stream.Send, s.core.takeApplications)
}

func (s *scheduler) UpdateAllocation(stream si.Scheduler_UpdateAllocationServer) error {
	return serve(s.core, "UpdateAllocation", stream, stream.Recv, stream.Send, s.core.takeAllocations)
}

// serve serves one stream: the first message binds it, the others are handled under the core's lock.
func serve[Request, Response any](c *Core, kind string, stream grpc.ServerStream, receive func() (*Request, error), send func(*Response) error, take func(*Request)) error {
	first, err := receive()
	if err != nil {
		return err
	}
	c.mu.Lock()
	if !c.registered {
		c.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "the resource manager is not registered")
	}
	mine := &line{messages: make(chan any, roomOfLine)}
	if c.Resumes {
		if err := c.goOn(kind, stream, mine); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.lines[kind] = mine
	c.note("bind %s", kind)
	for _, message := range c.backlog[kind] {
		mine.messages <- message
	}
	delete(c.backlog, kind)
	take(first)
	c.mu.Unlock()
	go func() {
		for {
			request, err := receive()
			if errors.Is(err, io.EOF) {
				mine.messages <- nil
				return
			}
			if err != nil {
				mine.messages <- err
				return
			}
			c.mu.Lock()
			if !c.deaf {
				c.applied[kind] += countEntries(any(request).(proto.Message))
				take(request)
			}
			c.mu.Unlock()
		}
	}()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lines[kind] == mine {
			delete(c.lines, kind)
		}
	}()
	for message := range mine.messages {
		switch message := message.(type) {
		case *Response:
			if err := send(message); err != nil {
				return err
			}
		case error:
			return message
		case nil:
			c.mu.Lock()
			c.note("half-closed %s", kind)
			c.mu.Unlock()
			return nil
		}
	}
	return nil
}

const resumeKey = "kornel-resume"

// goOn continues a stream after the entries that the shim says it has received.
func (c *Core) goOn(kind string, stream grpc.ServerStream, mine *line) error {
	asked, _ := metadata.FromIncomingContext(stream.Context())
	mark := strings.Join(asked.Get(resumeKey), ",")
	c.note("goes on %s %s", kind, mark)
	epoch, count, _ := strings.Cut(mark, "/")
	received, err := strconv.ParseUint(count, 10, 64)
	if err != nil || epoch != fmt.Sprint("epoch-", c.epoch) {
		return status.Error(codes.FailedPrecondition, "resync-required: "+mark)
	}
	_ = stream.SendHeader(metadata.Pairs(resumeKey, fmt.Sprint("epoch-", c.epoch, "/", c.applied[kind])))
	for _, message := range c.sent[kind] {
		if count := countEntries(message); count <= received {
			received -= count
		} else {
			mine.messages <- message
		}
	}
	return nil
}

// countEntries returns the number of entries in all lists of a message; releases have their lists one level down.
func countEntries(message proto.Message) uint64 {
	var found uint64
	message.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.IsList() {
			found += uint64(value.List().Len())
		} else if field.Message() != nil {
			found += countEntries(value.Message().Interface())
		}
		return true
	})
	return found
}

type manager struct {
	kornelv1.UnimplementedManagerServiceServer
	core *Core
}

func (s *manager) Acknowledge(_ context.Context, request *kornelv1.AcknowledgeRequest) (*kornelv1.AcknowledgeResponse, error) {
	c := s.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if request.GetEpoch() != fmt.Sprint("epoch-", c.epoch) {
		return nil, status.Error(codes.FailedPrecondition, "resync-required: another epoch")
	}
	c.told = request.GetReceived()
	return &kornelv1.AcknowledgeResponse{Applied: &kornelv1.StreamCounts{
		Nodes: c.applied["UpdateNode"], Applications: c.applied["UpdateApplication"], Allocations: c.applied["UpdateAllocation"],
	}}, nil
}

type callbacks struct {
	kornelv1.UnimplementedCallbackServiceServer
	core *Core
}

func (s *callbacks) Attach(stream kornelv1.CallbackService_AttachServer) error {
	c := s.core
	mine := &peer{&line{make(chan any, roomOfLine)}, map[int64]chan *kornelv1.AttachRequest{}}
	take := func(request *kornelv1.AttachRequest) {
		if subscription := request.GetSubscription(); subscription != nil {
			c.peer = mine
			timeout := subscription.GetTimeoutMs()
			if timeout == 0 {
				timeout = 1000
			}
			c.note("attach %s", subscription.GetRmId())
			mine.line.messages <- &kornelv1.AttachResponse{Attached: &kornelv1.Attached{
				TimeoutMs: timeout, AwaitsPlacements: c.NamesPlacements && subscription.GetAwaitsPlacements(),
			}}
		}
		for _, answer := range request.GetPredicates() {
			mine.resolve(answer.GetQuestionId(), &kornelv1.AttachRequest{Predicates: []*kornelv1.PredicatesAnswer{answer}})
		}
		for _, answer := range request.GetPreemptionPredicates() {
			mine.resolve(answer.GetQuestionId(), &kornelv1.AttachRequest{PreemptionPredicates: []*kornelv1.PreemptionPredicatesAnswer{answer}})
		}
		for _, placed := range request.GetAcknowledged() {
			c.note("acknowledged %s on %s", placed.GetAllocationKey(), placed.GetNodeId())
		}
		if answer := request.GetStateDump(); answer != nil {
			mine.resolve(answer.GetQuestionId(), &kornelv1.AttachRequest{StateDump: answer})
		}
	}
	return serveLine(c, mine.line, stream, take)
}

func (p *peer) resolve(number int64, answer *kornelv1.AttachRequest) {
	if waiting := p.answers[number]; waiting != nil {
		waiting <- answer
		delete(p.answers, number)
	}
}

func serveLine(c *Core, mine *line, stream kornelv1.CallbackService_AttachServer, take func(*kornelv1.AttachRequest)) error {
	c.mu.Lock()
	registered := c.registered
	c.mu.Unlock()
	if !registered {
		return status.Error(codes.FailedPrecondition, "the resource manager is not registered")
	}
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				mine.messages <- err
				return
			}
			c.mu.Lock()
			take(request)
			c.mu.Unlock()
		}
	}()
	for message := range mine.messages {
		switch message := message.(type) {
		case *kornelv1.AttachResponse:
			if err := stream.Send(message); err != nil {
				return err
			}
		case error:
			if errors.Is(message, io.EOF) {
				return nil
			}
			return message
		}
	}
	return nil
}

type configuration struct {
	kornelv1.UnimplementedConfigurationServiceServer
	core *Core
}

func (s *configuration) UpdateConfiguration(_ context.Context, request *kornelv1.UpdateConfigurationRequest) (*kornelv1.UpdateConfigurationResponse, error) {
	c := s.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.registered {
		return nil, status.Error(codes.FailedPrecondition, "the resource manager is not registered")
	}
	if err := c.judgeConfig(request.GetConfig()); err != nil {
		c.note("refused %s", request.GetConfig())
		return nil, err
	}
	c.config = request.GetConfig()
	c.note("configuration %s", request.GetConfig())
	return &kornelv1.UpdateConfigurationResponse{Changed: true}, nil
}
