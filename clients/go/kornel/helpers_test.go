package kornel

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"

	"kornel.internal/clients/go/fakecore"
)

// deadline is a limit that only a client or a fake core with a fault reaches, however busy the machine is.
const deadline = 30 * time.Second

func serveCore(t *testing.T, core *fakecore.Core) *fakecore.Core {
	t.Helper()
	core.Serve()
	t.Cleanup(core.Stop)
	return core
}

func connect(t *testing.T, core *fakecore.Core, options Options) *Client {
	t.Helper()
	if options.Address == "" {
		options.Address = fakecore.Address
	}
	options.RMID = "rm-1"
	options.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if options.DialOptions == nil {
		options.DialOptions = []grpc.DialOption{core.Dialer()}
	}
	client, err := NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func withDeadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func register(t *testing.T, client *Client) *Session {
	t.Helper()
	session, err := client.Register(withDeadline(t), Registration{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(withDeadline(t)) })
	return session
}

func node(id string) *si.NodeInfo {
	return &si.NodeInfo{NodeID: id, Action: si.NodeInfo_CREATE, SchedulableResource: Amounts{"vcore": 4000}.Resource()}
}

func app(id string) *si.AddApplicationRequest {
	return &si.AddApplicationRequest{ApplicationID: id, QueueName: "root.q"}
}

func addApps(ids ...string) *si.ApplicationRequest {
	request := &si.ApplicationRequest{}
	for _, id := range ids {
		request.New = append(request.New, app(id))
	}
	return request
}

func asks(application string, keys ...string) *si.AllocationRequest {
	request := &si.AllocationRequest{}
	for _, key := range keys {
		ask := Ask{Key: key, ApplicationID: application, Resources: Amounts{"vcore": 1000}}
		request.Allocations = append(request.Allocations, ask.Allocation())
	}
	return request
}

func releases(each ...*si.AllocationRelease) *si.AllocationRequest {
	return &si.AllocationRequest{Releases: &si.AllocationReleasesRequest{AllocationsToRelease: each}}
}

// next returns the first update that satisfies a condition.
func next(t *testing.T, session *Session, wanted func(Update) bool) Update {
	t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case updates, open := <-session.Updates():
			if !open {
				t.Fatalf("the session ended: %v", session.Err())
			}
			if at := slices.IndexFunc(updates, wanted); at >= 0 {
				return updates[at]
			}
		case <-limit:
			t.Fatal("the update did not come")
		}
	}
}

func waitDone(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(deadline):
		t.Fatal("it did not end")
	}
}

// expectOrder fails unless the entries are in the log, in this order.
func expectOrder(t *testing.T, log []string, entries ...string) {
	t.Helper()
	rest := log
	for _, entry := range entries {
		at := slices.Index(rest, entry)
		if at < 0 {
			t.Fatalf("%q is missing, or too early, in:\n%s", entry, strings.Join(log, "\n"))
		}
		rest = rest[at+1:]
	}
}

func count(log []string, entry string) int {
	found := 0
	for _, each := range log {
		if each == entry {
			found++
		}
	}
	return found
}
