package kornel

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// errStreamBroke ends a session that must not open broken streams again.
var errStreamBroke = errors.New("a stream broke")

// A duplex is one call with messages in both directions.
type duplex[Request, Response any] interface {
	Send(*Request) error
	Recv() (*Response, error)
	CloseSend() error
	Header() (metadata.MD, error)
}

// A stream is one duplex call, kept open: it binds, writes requests, reads responses, and opens the call again when it
// breaks. The core keeps a manager's state while no stream is open, so a break costs nothing but time.
type stream[Request, Response any] struct {
	kind StreamKind
	open func(context.Context) (duplex[Request, Response], error)
	// first returns the first message, which binds the call.
	first func() *Request
	// next returns the next request, and a function to call once gRPC has taken it; nil when no more will come.
	next func(context.Context) (*Request, func())
	// progress counts entries in both directions. nil: they are not counted.
	progress *progress
	// deliver hands a response on; it blocks while there is no room for it.
	deliver func(context.Context, *Response)
	// broke is called after a call has ended, reopened once the core has accepted the next one: until then it may refuse to
	// go on. A core that does not say what it has applied is not waited for.
	broke, reopened func()
	// down tells whether broke was called last.
	down bool
	// closing tells whether the session is being closed, so that the end of the call is expected.
	closing func() bool
	// ready waits for a connection.
	ready func(context.Context) error
	// once tells whether the stream ends with its next break.
	once func() bool
}

// run keeps the call open until closing is true and the core has finished. The error says why opening it again cannot help.
func (s *stream[Request, Response]) run(ctx context.Context) error {
	pause := firstPause
	for again := false; ; again = true {
		if err := s.ready(ctx); err != nil {
			return err
		}
		heard, err := s.runCall(ctx, again)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.closing() {
			return nil
		}
		delay, fatal := judgeStreamEnd(string(s.kind), err)
		if fatal != nil {
			return fatal
		}
		if s.once() {
			return fmt.Errorf("%s: %w: %w", s.kind, errStreamBroke, err)
		}
		if s.broke != nil && !s.down {
			s.broke()
		}
		s.down = true
		// Pauses begin anew after a stream that worked. A stream that breaks at once must not be opened again and again.
		if heard {
			pause = firstPause
		}
		if err := sleep(ctx, max(delay, spread(pause))); err != nil {
			return err
		}
		pause = nextPause(pause)
	}
}

// runCall runs one call to its end. It tells whether anything was received, and how the call ended: io.EOF is a status of
// OK.
func (s *stream[Request, Response]) runCall(ctx context.Context, again bool) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	marked := ctx
	if s.progress != nil {
		marked = s.progress.mark(ctx)
	}
	call, err := s.open(marked)
	if err != nil {
		return false, err
	}
	greeted, err := s.bind(call)
	if err != nil {
		return false, err
	}
	if greeted {
		if again && s.reopened != nil {
			s.reopened()
			s.down = false
		}
		writing := make(chan struct{})
		go func() {
			defer close(writing)
			s.write(ctx, call)
		}()
		defer func() {
			cancel()
			<-writing
		}()
	}
	for {
		response, err := call.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return heard, nil
			}
			return heard, err
		}
		heard = true
		if s.progress != nil {
			s.progress.noteReceived(any(response).(proto.Message))
		}
		s.deliver(ctx, response)
	}
}

// bind binds a call, and goes on from the count that the core names when it opens a stream. It returns false if the call is
// over already; the reading side learns why. An error says that the stream cannot go on from that count.
func (s *stream[Request, Response]) bind(call duplex[Request, Response]) (bool, error) {
	// An error of Send only says that the call is over.
	if call.Send(s.first()) != nil {
		return false, nil
	}
	if s.progress == nil || !s.progress.awaitsGreeting() {
		return true, nil
	}
	// A call that is over has no header.
	header, err := call.Header()
	if err != nil || header == nil {
		return false, nil
	}
	return true, s.progress.followGreeting(header)
}

// write writes what there is until the call is over.
func (s *stream[Request, Response]) write(ctx context.Context, call duplex[Request, Response]) {
	for {
		request, taken := s.next(ctx)
		if request == nil {
			if ctx.Err() == nil {
				_ = call.CloseSend()
			}
			return
		}
		if call.Send(request) != nil {
			return
		}
		// The request is removed only now, so that it is written again if the call breaks while it is written.
		taken()
	}
}
