package kornel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrResyncRequired says that the core does not know the resource manager any more: it has to register again, and to
	// report everything anew.
	ErrResyncRequired = errors.New("the core wants a new registration")
	// ErrSuperseded says that another program has registered as the same resource manager. Registering again would
	// end the other one's streams in turn, so whoever reads this should stop.
	ErrSuperseded = errors.New("another program has registered as this resource manager")
	// ErrConnectionLost says that no connection could be made in the time allowed.
	ErrConnectionLost = errors.New("the connection to the core is lost")
	// ErrClosed says that the session or the shim was closed by its own program.
	ErrClosed = errors.New("closed")
	// ErrNotSupported says that the core serves si.v1, but not this call of kornel.v1.
	ErrNotSupported = errors.New("not supported by this core")
	// ErrCredentials says that credentials cannot be used. The text never quotes a secret.
	ErrCredentials = errors.New("credentials cannot be used")
)

// supersededToken is the word with which the core ends the streams of a manager whose successor has registered.
const supersededToken = "superseded"

// A RefusedError says that the core refused a call, or ended a stream with a status that another try would only repeat.
type RefusedError struct {
	Call   string
	Status *status.Status
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s refused (%s): %s", e.Call, e.Status.Code(), e.Status.Message())
}

// GRPCStatus returns the status that the core gave, for [status.FromError].
func (e *RefusedError) GRPCStatus() *status.Status { return e.Status }

// isSuperseded tells whether a status says that another program registered as the same resource manager.
func isSuperseded(found *status.Status) bool {
	return found.Code() == codes.Aborted && strings.Contains(found.Message(), supersededToken)
}

// judgeStreamEnd returns the error for a stream that ended with err, or nil if the stream may be opened again. In the
// latter case it also returns how long the core asks to wait, zero if it does not ask.
func judgeStreamEnd(call string, err error) (time.Duration, error) {
	found := status.Convert(err)
	switch found.Code() {
	case codes.FailedPrecondition:
		return 0, fmt.Errorf("%s: %w: %s", call, ErrResyncRequired, found.Message())
	case codes.Aborted:
		if isSuperseded(found) {
			return 0, fmt.Errorf("%s: %w: %s", call, ErrSuperseded, found.Message())
		}
		return 0, nil
	case codes.OK, codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal:
		return 0, nil
	case codes.Unavailable:
		delay, _ := retryDelay(found)
		return delay, nil
	case codes.ResourceExhausted:
		// Without a delay the cause is a message that is too large, or a limit that the same stream would meet again.
		if delay, ok := retryDelay(found); ok {
			return delay, nil
		}
	case codes.Unimplemented:
		return 0, fmt.Errorf("%s: %w", call, ErrNotSupported)
	}
	return 0, &RefusedError{call, found}
}

// judgeCall turns the error of a unary call into one of this package.
func judgeCall(call string, err error) error {
	found := status.Convert(err)
	switch {
	case err == nil:
		return nil
	case found.Code() == codes.Unimplemented:
		return fmt.Errorf("%s: %w", call, ErrNotSupported)
	case isSuperseded(found):
		return fmt.Errorf("%s: %w: %s", call, ErrSuperseded, found.Message())
	}
	return &RefusedError{call, found}
}

// retryDelay returns how long the core asks to wait before another try.
func retryDelay(found *status.Status) (time.Duration, bool) {
	for _, detail := range found.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
