package kornel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/fakecore"
)

var both = fakecore.AddressOf(0) + ", " + fakecore.AddressOf(1)

// servePair serves two cores, of which the first one leads.
func servePair(t *testing.T) (leader, standby *fakecore.Core) {
	t.Helper()
	leader, standby = serveCore(t, newResumingCore()), serveCore(t, newResumingCore())
	leader.Lead(1, nil)
	standby.StandBy(fakecore.AddressOf(0))
	return leader, standby
}

func connectTo(t *testing.T, address string, cores ...*fakecore.Core) *Client {
	t.Helper()
	return connect(t, cores[0], Options{Address: address, DialOptions: []grpc.DialOption{fakecore.Dialer(cores...)}})
}

func TestAddressesAreSeparatedByCommas(t *testing.T) {
	for address, wanted := range map[string][]string{
		"core:1":             {"core:1"},
		"a:1,b:2":            {"a:1", "b:2"},
		" a:1 , b:2,, a:1, ": {"a:1", "b:2"},
		"unix:/run/k.sock":   {"unix:/run/k.sock"},
		"":                   nil,
	} {
		if found := splitAddresses(address); !slices.Equal(found, wanted) {
			t.Errorf("%q: %q", address, found)
		}
	}
}

func TestClientTalksToTheCoreThatLeads(t *testing.T) {
	standby, leader := serveCore(t, newResumingCore()), serveCore(t, newResumingCore())
	standby.StandBy("")
	leader.Lead(7, nil)
	session := register(t, connectTo(t, both, standby, leader))
	if answers, err := session.CreateNodes(withDeadline(t), node("n")); err != nil || answers[0] != (NodeAccepted{"n"}) {
		t.Fatalf("%v %v", answers, err)
	}
	if log := standby.Log(); len(log) != 0 {
		t.Fatalf("the standby was called: %q", log)
	}
}

func TestClientWithOneAddressIsReferredToTheLeader(t *testing.T) {
	leader, standby := servePair(t)
	client := connectTo(t, fakecore.AddressOf(1), leader, standby)
	session := register(t, client)
	if _, err := session.CreateNodes(withDeadline(t), node("n")); err != nil {
		t.Fatal(err)
	}
	if got := standby.Log(); !slices.Equal(got, []string{"referred RegisterResourceManager"}) {
		t.Fatalf("the standby was called: %q", got)
	}
	if got := count(leader.Log(), "register rm-1"); got != 1 {
		t.Fatalf("registered %d times", got)
	}
}

func TestCallIsMadeAgainAtTheLeaderThatTheStandbyNames(t *testing.T) {
	leader, standby := servePair(t)
	client := connectTo(t, both, leader, standby)
	register(t, client)
	standby.Lead(2, leader)
	leader.StandBy(fakecore.AddressOf(1))
	if _, err := client.UpdateConfiguration(withDeadline(t), "", "queues", nil); err != nil {
		t.Fatal(err)
	}
	if got := standby.Config(); got != "queues" {
		t.Fatalf("the leader has %q", got)
	}
}

func TestStreamsGoOnExactlyAtTheNextLeader(t *testing.T) {
	for name, leave := range map[string]func(leader, standby *fakecore.Core){
		"that it names": func(leader, standby *fakecore.Core) {
			leader.StandBy(fakecore.AddressOf(1))
			standby.Lead(2, leader)
		},
		"after its end": func(leader, standby *fakecore.Core) {
			leader.Stop()
			standby.Lead(2, leader)
		},
		"while it still believes that it leads": func(leader, standby *fakecore.Core) { standby.Lead(2, leader) },
	} {
		t.Run(name, func(t *testing.T) {
			leader, standby := servePair(t)
			heard := newRecorder()
			shim := NewShim(connectTo(t, both, leader, standby), ShimOptions{Receive: heard.receive, Callbacks: attached})
			if err := shim.Start(withDeadline(t), Registration{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = shim.Close(withDeadline(t)) })
			shim.UpdateNodes(node("n1"))
			shim.UpdateApplications(addApps("a"))
			heard.waitFor(t, "node n1", "application a")
			shim.UpdateAllocations(asks("a", "before"))
			heard.waitFor(t, "before on n1")

			leader.Block(true, true)
			shim.UpdateAllocations(asks("a", "lost"))
			eventually(t, "it was not written", func() bool { return shim.Status().Queued == 0 })
			leave(leader, standby)
			shim.UpdateAllocations(asks("a", "after"))

			heard.waitFor(t, "lost on n1", "after on n1")
			if !standby.WaitFor("attach rm-1") {
				t.Fatal("the callbacks are not attached")
			}
			for _, entry := range []string{"before on n1", "lost on n1", "after on n1", "node n1", "application a"} {
				if found := count(heard.all(), entry); found != 1 {
					t.Errorf("%q came %d times", entry, found)
				}
			}
			if log := standby.Log(); slices.Contains(log, "register rm-1") || count(log, "ask lost") != 1 || slices.Contains(log, "ask before") {
				t.Errorf("the next leader was told: %q", log)
			}
		})
	}
}

func TestLeaderOfAnEarlierEpochIsNotChosenAgain(t *testing.T) {
	asleep, leader := serveCore(t, newResumingCore()), serveCore(t, newResumingCore())
	asleep.Lead(1, nil)
	leader.Lead(2, nil)
	client := connectTo(t, both, asleep, leader)
	if !client.connection.choose(standing{address: fakecore.AddressOf(1), leads: true, epoch: 2}, 0) {
		t.Fatal("not chosen")
	}
	for range 10 {
		if err := client.WaitUntilReady(withDeadline(t)); err != nil {
			t.Fatal(err)
		}
		if chosen := client.connection.chosen; chosen != fakecore.AddressOf(1) {
			t.Fatalf("chosen: %s", chosen)
		}
	}
}

func TestSearchSaysWhyNoCoreLeads(t *testing.T) {
	standby := serveCore(t, newResumingCore())
	standby.StandBy("")
	client := connect(t, standby, Options{
		Address: both, ConnectTimeout: 200 * time.Millisecond, DialOptions: []grpc.DialOption{fakecore.Dialer(standby)},
	})
	_, err := client.Register(withDeadline(t), Registration{})
	if !errors.Is(err, ErrConnectionLost) || !strings.Contains(err.Error(), "stands by") || !strings.Contains(err.Error(), "there is no core at core-1") {
		t.Fatal(err)
	}
}

func TestSearchEndsWithItsClient(t *testing.T) {
	standby := serveCore(t, newResumingCore())
	standby.StandBy("")
	client := connectTo(t, both, standby)
	ended := make(chan error, 1)
	go func() { ended <- client.WaitUntilReady(withDeadline(t)) }()
	eventually(t, "it did not search", func() bool { return len(client.connection.looking) == 1 })
	_ = client.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := client.UpdateConfiguration(withDeadline(t), "", "queues", nil); !isRefusal(err, codes.Canceled) {
		t.Fatalf("called after the end: %v", err)
	}
}

func TestTokenIsNotSentToALeaderInPlainText(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	proof := Credentials{TokenFile: token}
	if _, err := NewClient(Options{Address: "127.0.0.1:1,core.example:1", RMID: "rm-1", Credentials: proof}); !errors.Is(err, ErrCredentials) {
		t.Fatalf("two addresses, one of them elsewhere: %v", err)
	}
	client, err := NewClient(Options{Address: "127.0.0.1:1", RMID: "rm-1", Credentials: proof, ConnectTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if !client.connection.noteLeader(metadata.Pairs(leaderKey, "core.example:1")) {
		t.Fatal("not noted")
	}
	_, err = client.Register(withDeadline(t), Registration{})
	if !errors.Is(err, ErrConnectionLost) || !strings.Contains(err.Error(), "core.example:1: credentials cannot be used: a token is not sent") {
		t.Fatal(err)
	}
}

func TestOnlySoManyNamedAddressesAreRemembered(t *testing.T) {
	client, err := NewClient(Options{Address: "127.0.0.1:1,127.0.0.1:2", RMID: "rm-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := client.connection
	for number := range 100 {
		l.noteLeader(metadata.Pairs(leaderKey, fmt.Sprintf("127.0.0.1:%d", 10+number)))
		l.noteLeader(metadata.Pairs(leaderKey, "127.0.0.1:10"))
		if number%10 == 9 {
			l.mu.Lock()
			addresses := l.addresses
			l.mu.Unlock()
			l.look(withDeadline(t), addresses, 1)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.addresses) != 2+mostNamed || l.addresses[0] != "127.0.0.1:1" || l.addresses[1] != "127.0.0.1:2" {
		t.Fatalf("the addresses of the caller stay, and few others: %v", l.addresses)
	}
	if !slices.Contains(l.addresses, "127.0.0.1:109") || !slices.Contains(l.addresses, "127.0.0.1:10") {
		t.Fatalf("the newest ones stay: %v", l.addresses)
	}
	if len(l.connections) > len(l.addresses) || len(l.reasons) > len(l.addresses) {
		t.Fatalf("%d connections and %d reasons are kept", len(l.connections), len(l.reasons))
	}
}

func TestCallThatTheChangeOfTheLeaderCutOffIsNotARefusal(t *testing.T) {
	if err := judgeCall("UpdateConfiguration", status.Error(codes.Canceled, "grpc: the client connection is closing")); !mayBeBrought(err) {
		t.Fatal(err)
	}
}
