package kornel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/kornelv1"
)

const (
	maxMessageBytes = 64 << 20
	callTimeout     = 30 * time.Second
	// The core allows a ping every ten seconds at most.
	pingInterval = 10 * time.Second
	pingTimeout  = 15 * time.Second
	firstPause   = 50 * time.Millisecond
	// sessionKey is the metadata entry that names this program's session. By it a core distinguishes two programs that speak
	// for the same resource manager, whichever connections they use.
	sessionKey = "kornel-session"
	// leaseKey asks the core to refuse a registration while another session is open; retryKey, in the trailing metadata of
	// such a refusal, says after how long to try again.
	leaseKey     = "kornel-lease"
	retryKey     = "kornel-retry-after-ms"
	longestPause = time.Second
)

// Options say how a client works. The zero value of each but Address and RMID is a good one.
type Options struct {
	// Address of the core, such as 127.0.0.1:50051 or unix:/run/kornel.sock; or the addresses of several cores that share a
	// journal, separated by commas. The client then talks to the leader.
	Address string
	// RMID names the resource manager.
	RMID string
	// Credentials prove who the shim is.
	Credentials Credentials
	// ConnectTimeout is how long a registration waits for a connection. Zero: 10 s.
	ConnectTimeout time.Duration
	// ReconnectTimeout is how long a connection may be broken before a session ends. Zero: 60 s.
	ReconnectTimeout time.Duration
	// Batch is the most entries of one request. Zero: 1000.
	Batch int
	// Outbox is the most entries that wait per stream before a method that sends waits too. Zero: 20,000.
	Outbox int
	// Inbox is the most messages that wait unread; when it is full, the streams are not read. Zero: 1000.
	Inbox int
	// Logger receives problems that end nothing. Nil: [slog.Default].
	Logger *slog.Logger
	// DialOptions are appended to those of the client.
	DialOptions []grpc.DialOption
}

// A Client is a connection to one core, or to the leader of several, on behalf of one resource manager. After a break it
// connects again by itself.
type Client struct {
	options    Options
	connection *leaderConnection
	scheduler  si.SchedulerClient
}

// NewClient prepares a client without connecting. An error is [ErrCredentials], or about the address.
func NewClient(options Options) (*Client, error) {
	setDefault(&options.ConnectTimeout, 10*time.Second)
	setDefault(&options.ReconnectTimeout, time.Minute)
	setDefault(&options.Batch, 1000)
	setDefault(&options.Outbox, 20_000)
	setDefault(&options.Inbox, 1000)
	setDefault(&options.Logger, slog.Default())
	addresses := splitAddresses(options.Address)
	if len(addresses) == 0 {
		addresses = []string{options.Address}
	}
	longestBackoff := longestPause
	if len(addresses) > 1 {
		longestBackoff = 200 * time.Millisecond // Another core takes over within seconds.
	}
	session := rand.Text()
	common := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		// gRPC's own pauses between attempts grow to two minutes, so a core that comes back would be found late.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff},
			MinConnectTimeout: 5 * time.Second,
		}),
		// Pings that are not answered show that the core hangs or the network drops packets.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		// By default a channel without calls for half an hour disconnects.
		grpc.WithIdleTimeout(0),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(metadata.AppendToOutgoingContext(ctx, sessionKey, session), method, request, reply, connection, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(metadata.AppendToOutgoingContext(ctx, sessionKey, session), description, connection, method, options...)
		}),
	}
	connection, err := newLeaderConnection(addresses, options.ConnectTimeout, options.Logger, func(address string) (*grpc.ClientConn, error) {
		proofs, err := options.Credentials.dialOptions(address)
		if err != nil {
			return nil, err
		}
		made, err := grpc.NewClient(address, slices.Concat(common, proofs, options.DialOptions)...)
		if err != nil {
			return nil, fmt.Errorf("address of the core: %w", err)
		}
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return &Client{options, connection, si.NewSchedulerClient(connection)}, nil
}

func setDefault[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}

// RMID returns the name of the resource manager.
func (c *Client) RMID() string { return c.options.RMID }

// Connection returns the connection, for the other services of kornel.v1.
func (c *Client) Connection() grpc.ClientConnInterface { return c.connection }

// Close ends the connection with everything on it. Close its [Session] before, so that what is queued gets written.
func (c *Client) Close() error { return c.connection.Close() }

// WaitUntilReady waits for a connection to the core, or until one of several cores leads. It returns [ErrConnectionLost]
// once ctx is done.
func (c *Client) WaitUntilReady(ctx context.Context) error { return c.connection.find(ctx) }

func (c *Client) waitUntilReady(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.WaitUntilReady(limited)
	if errors.Is(err, ErrConnectionLost) && ctx.Err() == nil {
		if cause := c.connection.explain(ctx); cause != "" {
			return fmt.Errorf("%w: %s", err, cause)
		}
	}
	return err
}

// A Registration is what a resource manager tells the core about itself.
type Registration struct {
	// Config is the text of queues.yaml. Empty: the core's default.
	Config string
	// PolicyGroup is the key under which the configuration is remembered. Empty: queues.
	PolicyGroup string
	Version     string
	BuildInfo   map[string]string
	// ExtraConfig holds the settings outside of the queues.
	ExtraConfig map[string]string
	// WaitFor has the registration wait until another program that registered as this manager has had no stream open for this
	// time, to the millisecond. Zero: the registration takes the place of that program at once.
	WaitFor time.Duration
}

// register registers the resource manager. The core then drops everything that was reported for it before. It returns the
// epoch that the core named, from which both sides count entries; empty: the core does not count.
func (c *Client) register(ctx context.Context, registration Registration) (string, error) {
	if err := c.waitUntilReady(ctx, c.options.ConnectTimeout); err != nil {
		return "", err
	}
	setDefault(&registration.PolicyGroup, "queues")
	request := &si.RegisterResourceManagerRequest{
		RmID:        c.options.RMID,
		Version:     registration.Version,
		PolicyGroup: registration.PolicyGroup,
		BuildInfo:   registration.BuildInfo,
		Config:      registration.Config,
		ExtraConfig: registration.ExtraConfig,
	}
	if registration.WaitFor > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, leaseKey, fmt.Sprintf("wait=%dms", countMilliseconds(registration.WaitFor)))
	}
	for {
		var header, trailer metadata.MD
		err := c.call(ctx, "RegisterResourceManager", func(limited context.Context) error {
			_, err := c.scheduler.RegisterResourceManager(limited, request, grpc.Header(&header), grpc.Trailer(&trailer))
			return err
		})
		held := trailer.Get(retryKey)
		if !isRefusal(err, codes.FailedPrecondition) || len(held) == 0 {
			return strings.Join(header.Get(resumeKey), ","), err
		}
		waitMs, unreadable := strconv.Atoi(held[0])
		if unreadable != nil || sleep(ctx, time.Duration(waitMs)*time.Millisecond) != nil {
			return "", err
		}
	}
}

// countMilliseconds returns how many milliseconds a duration has. What is left over counts as one, so that a duration
// above zero is never sent as none.
func countMilliseconds(wanted time.Duration) int64 {
	return (wanted + time.Millisecond - 1).Milliseconds()
}

// Unregister removes the resource manager and everything it reported from the core (kornel.v1). Streams that are open end.
func (c *Client) Unregister(ctx context.Context) error {
	stub := kornelv1.NewManagerServiceClient(c.connection)
	return c.call(ctx, "UnregisterResourceManager", func(limited context.Context) error {
		request := &kornelv1.UnregisterResourceManagerRequest{RmId: c.options.RMID}
		_, err := stub.UnregisterResourceManager(limited, request)
		return err
	})
}

// UpdateConfiguration puts another queue configuration and other settings into force (kornel.v1). A configuration with
// errors is refused as a whole with INVALID_ARGUMENT.
func (c *Client) UpdateConfiguration(ctx context.Context, policyGroup, config string, extraConfig map[string]string) (*kornelv1.UpdateConfigurationResponse, error) {
	stub := kornelv1.NewConfigurationServiceClient(c.connection)
	setDefault(&policyGroup, "queues")
	request := &kornelv1.UpdateConfigurationRequest{
		RmId: c.options.RMID, PolicyGroup: policyGroup, Config: config, ExtraConfig: extraConfig,
	}
	var response *kornelv1.UpdateConfigurationResponse
	err := c.call(ctx, "UpdateConfiguration", func(limited context.Context) (err error) {
		response, err = stub.UpdateConfiguration(limited, request)
		return err
	})
	return response, err
}

// ValidateConfiguration returns the core's judgement of a queue configuration (kornel.v1). It changes nothing.
func (c *Client) ValidateConfiguration(ctx context.Context, config string) (*kornelv1.ValidateConfigurationResponse, error) {
	stub := kornelv1.NewConfigurationServiceClient(c.connection)
	var response *kornelv1.ValidateConfigurationResponse
	err := c.call(ctx, "ValidateConfiguration", func(limited context.Context) (err error) {
		response, err = stub.ValidateConfiguration(limited, &kornelv1.ValidateConfigurationRequest{Config: config})
		return err
	})
	return response, err
}

// call makes a unary call, again and again while the core is too busy for it and says how long to wait.
func (c *Client) call(ctx context.Context, name string, do func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		err := do(limited)
		cancel()
		if found := status.Convert(err); found.Code() == codes.ResourceExhausted || found.Code() == codes.Unavailable {
			if delay, ok := retryDelay(found); ok && sleep(ctx, delay) == nil {
				continue
			}
		}
		return judgeCall(name, err)
	}
}

// sleep waits for a duration, or until ctx is done.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextPause returns the pause after one: twice as long, up to a second.
func nextPause(pause time.Duration) time.Duration {
	return min(2*pause, longestPause)
}

// spread returns the pause changed at random by up to a fifth, so that many shims do not come back at the same moment.
func spread(pause time.Duration) time.Duration {
	return time.Duration(float64(pause) * (0.8 + 0.4*mathrand.Float64()))
}

// isRefusal tells whether err is a refusal with one of these codes.
func isRefusal(err error, wanted ...codes.Code) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	for _, code := range wanted {
		if refused.Status.Code() == code {
			return true
		}
	}
	return false
}
