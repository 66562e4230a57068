package scheduler

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornel"
	"kornel.internal/clients/go/kornelv1"
)

// deadline is longer than anything takes that works.
const deadline = 10 * time.Second

// A standIn implements the callbacks that the shim gives to a scheduler. It records the calls, and refuses the nodes that a
// test names.
type standIn struct {
	mu      sync.Mutex
	changed chan struct{}
	heard   []string
	refuse  func(key, node string) error
	placed  map[string][]string // by node, the keys of the placements that were taken over
}

func newStandIn() *standIn {
	return &standIn{changed: make(chan struct{}), placed: map[string][]string{}, refuse: func(string, string) error { return nil }}
}

func (s *standIn) write(format string, values ...any) {
	s.heard = append(s.heard, fmt.Sprintf(format, values...))
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *standIn) UpdateAllocation(response *si.AllocationResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range response.GetNew() {
		s.placed[each.GetNodeID()] = append(s.placed[each.GetNodeID()], each.GetAllocationKey())
		s.write("%s on %s", each.GetAllocationKey(), each.GetNodeID())
	}
	for _, each := range response.GetReleased() {
		s.write("%s released", each.GetAllocationKey())
	}
	return nil
}

func (s *standIn) UpdateApplication(response *si.ApplicationResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range response.GetAccepted() {
		s.write("application %s", each.GetApplicationID())
	}
	for _, each := range response.GetRejected() {
		s.write("no application %s: %s", each.GetApplicationID(), each.GetReason())
	}
	return nil
}

func (s *standIn) UpdateNode(response *si.NodeResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range response.GetAccepted() {
		s.write("node %s", each.GetNodeID())
	}
	return nil
}

func (s *standIn) Predicates(args *si.PredicatesArgs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse(args.GetAllocationKey(), args.GetNodeID())
}

func (s *standIn) PreemptionPredicates(args *si.PreemptionPredicatesArgs) *si.PreemptionPredicatesResponse {
	return &si.PreemptionPredicatesResponse{Success: true, Index: args.GetStartIndex()}
}

func (s *standIn) SendEvent(events []*si.EventRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write("%d events", len(events))
}

func (s *standIn) UpdateContainerSchedulingState(request *si.UpdateContainerSchedulingStateRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write("%s %s", request.GetAllocationKey(), request.GetState())
}

func (s *standIn) GetStateDump() (string, error) { return `{"shim": "stand-in"}`, nil }

func (s *standIn) waitFor(t *testing.T, entries ...string) {
	t.Helper()
	limit := time.After(deadline)
	for {
		s.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(entries), func(entry string) bool { return slices.Contains(s.heard, entry) })
		heard, changed := slices.Clone(s.heard), s.changed
		s.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%v is missing in %v", missing, heard)
		}
	}
}

func start(t *testing.T, core *fakecore.Core, callback *standIn) *Remote {
	t.Helper()
	core.Serve()
	t.Cleanup(core.Stop)
	remote := newRemote(core)
	t.Cleanup(remote.Stop)
	if _, err := remote.RegisterResourceManager(&si.RegisterResourceManagerRequest{RmID: "mycluster", Config: "good"}, callback); err != nil {
		t.Fatal(err)
	}
	return remote
}

func newRemote(core *fakecore.Core) *Remote {
	return New(Options{
		Address: fakecore.Address, DialOptions: []grpc.DialOption{core.Dialer()}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func node(id string) *si.NodeRequest {
	info := &si.NodeInfo{NodeID: id, Action: si.NodeInfo_CREATE, SchedulableResource: kornel.Amounts{"vcore": 4000}.Resource()}
	return &si.NodeRequest{Nodes: []*si.NodeInfo{info}, RmID: "mycluster"}
}

func application(id string) *si.ApplicationRequest {
	return &si.ApplicationRequest{New: []*si.AddApplicationRequest{{ApplicationID: id}}, RmID: "mycluster"}
}

func ask(key string) *si.AllocationRequest {
	return &si.AllocationRequest{Allocations: []*si.Allocation{kornel.Ask{Key: key, ApplicationID: "a"}.Allocation()}, RmID: "mycluster"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func question(key string, allocate bool, nodes ...string) *kornelv1.AttachResponse {
	return &kornelv1.AttachResponse{Predicates: []*kornelv1.PredicatesQuestion{{
		ApplicationId: "a", AllocationKey: key, NodeIds: nodes, Allocate: allocate,
	}}}
}

func refusals(t *testing.T, answer <-chan *kornelv1.AttachRequest) map[string]string {
	t.Helper()
	select {
	case found := <-answer:
		refused := map[string]string{}
		for _, each := range found.GetPredicates()[0].GetRefusals() {
			refused[each.GetNodeId()] = each.GetReason()
		}
		return refused
	case <-time.After(deadline):
		t.Fatal("no answer")
		return nil
	}
}

func TestShimIsRegisteredAndAskedBeforeAnythingIsPlaced(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	must(t, remote.UpdateNode(node("n1")))
	shim.waitFor(t, "node n1")
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "application a")
	must(t, remote.UpdateAllocation(ask("pod-1")))
	shim.waitFor(t, "pod-1 on n1")
	log := core.Log()
	if slices.Index(log, "attach mycluster") > slices.Index(log, "node n1 CREATE") || core.Config() != "good" {
		t.Fatalf("%v", log)
	}
}

func TestShimWaitsForAnotherThatHasTheCore(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	core.HoldRegistrations = 2
	start(t, core, shim)
	log := core.Log()
	held, registered := slices.Index(log, "held wait=1000ms"), slices.Index(log, "register mycluster")
	if held < 0 || registered < held {
		t.Fatalf("%v", log)
	}
}

func TestCoreThatComesBackIsToldEverything(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	must(t, remote.UpdateNode(node("n1")))
	shim.waitFor(t, "node n1")
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "application a")
	must(t, remote.UpdateAllocation(ask("pod-1")))
	shim.waitFor(t, "pod-1 on n1")

	core.Stop()
	// The shim holds locks while it reports, so no report may wait for a core that cannot be reached.
	must(t, remote.UpdateAllocation(ask("pod-2")))
	must(t, remote.UpdateNode(node("n2")))
	core.Restart()
	shim.waitFor(t, "node n2", "pod-2 on n1")
	log := core.Since("register")
	for _, entry := range []string{"node n1 CREATE_DRAIN", "application a forced", "allocation pod-1 on n1", "ask pod-2", "node n1 DRAIN_TO_SCHEDULABLE"} {
		if !slices.Contains(log, entry) {
			t.Errorf("%q is missing in %v", entry, log)
		}
	}
	shim.mu.Lock()
	defer shim.mu.Unlock()
	if got := len(slices.DeleteFunc(slices.Clone(shim.heard), func(entry string) bool { return entry != "pod-1 on n1" })); got != 1 {
		t.Fatalf("the shim heard %d times of pod-1: %v", got, shim.heard)
	}
}

func TestAllNodesOfAnOrdinaryPodAreJudged(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	shim.refuse = func(_, node string) error {
		if node == "n2" {
			return errors.New("untolerated taint")
		}
		return nil
	}
	start(t, core, shim)
	got := refusals(t, core.Ask(question("pod-1", true, "n1", "n2", "n3"))[0])
	if len(got) != 1 || got["n2"] != "untolerated taint" {
		t.Fatalf("refused: %v", got)
	}
}

func TestAPodWithResourceClaimsRunsNowhere(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	shim.refuse = func(key, _ string) error { return errors.New("the shim was asked about " + key) }
	core.Serve()
	t.Cleanup(core.Stop)
	remote := newRemote(core)
	t.Cleanup(remote.Stop)
	claims := &v1.Pod{Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}}}}
	remote.FindPods(func(string) *v1.Pod { return claims })
	_, err := remote.RegisterResourceManager(&si.RegisterResourceManagerRequest{RmID: "mycluster", Config: "good"}, shim)
	must(t, err)
	if found := refusals(t, core.Ask(question("pod", true, "n1", "n2"))[0]); found["n1"] != claimsRefusal || found["n2"] != claimsRefusal {
		t.Fatalf("refused: %v", found)
	}
	// Nobody leaves for it either.
	answer := <-core.Ask(&kornelv1.AttachResponse{PreemptionPredicates: []*kornelv1.PreemptionPredicatesQuestion{{
		Arguments: &si.PreemptionPredicatesArgs{AllocationKey: "pod", NodeID: "n1", PreemptAllocationKeys: []string{"victim"}},
	}}})[0]
	if answer.GetPreemptionPredicates()[0].GetResponse().GetSuccess() {
		t.Fatal("victims help it")
	}
}

// Anti-affinity: each pod refuses a node that another one was placed on, as far as the shim knows by then.
func TestDependentPodsAreMarkedJudgedOneByOneAndAcknowledged(t *testing.T) {
	const pods = 20
	core, shim := fakecore.New(), newStandIn()
	core.HoldAsks = true
	judged := 0
	shim.refuse = func(_, node string) error {
		judged++
		if len(shim.placed[node]) > 0 {
			return errors.New("didn't match pod anti-affinity rules")
		}
		return nil
	}
	remote := start(t, core, shim)
	remote.FindPods(func(key string) *v1.Pod {
		spread := v1.TopologySpreadConstraint{WhenUnsatisfiable: v1.DoNotSchedule}
		return &v1.Pod{Spec: v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{spread}}}
	})
	nodes := make([]string, pods)
	for n := range nodes {
		nodes[n] = fmt.Sprintf("n%d", n)
		must(t, remote.UpdateNode(node(nodes[n])))
		shim.waitFor(t, "node "+nodes[n])
	}
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "application a")
	for n := range pods {
		key := fmt.Sprintf("pod-%d", n)
		request := ask(key)
		must(t, remote.UpdateAllocation(request))
		if request.GetAllocations()[0].GetAllocationTags()[kornel.TagDependsOnPlacements] != "true" {
			t.Fatal("the core is not told that it depends")
		}
		if !core.WaitFor("ask " + key) {
			t.Fatal("not asked")
		}
		asked := question(key, true, nodes...)
		asked.GetPredicates()[0].Dependent = true
		refused := refusals(t, core.Ask(asked)[0])
		where := ""
		for _, node := range nodes {
			if refused[node] == "" {
				where = node
				core.Place(key, node)
				break
			}
		}
		if !core.WaitFor("acknowledged " + key + " on " + where) {
			t.Fatalf("not acknowledged: %v", core.Log())
		}
	}
	shim.mu.Lock()
	defer shim.mu.Unlock()
	for _, node := range nodes {
		if len(shim.placed[node]) != 1 {
			t.Errorf("on %s: %v", node, shim.placed[node])
		}
	}
	if wanted := pods * (pods + 1) / 2; judged != wanted {
		t.Errorf("%d judgements instead of %d: the nodes behind a yes need none", judged, wanted)
	}
}

func TestOrdinaryPodsAreNeitherMarkedNorAcknowledged(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	remote.FindPods(func(string) *v1.Pod { return &v1.Pod{} })
	must(t, remote.UpdateNode(node("n1")))
	shim.waitFor(t, "node n1")
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "application a")
	request := ask("plain")
	must(t, remote.UpdateAllocation(request))
	shim.waitFor(t, "plain on n1")
	if tags := request.GetAllocations()[0].GetAllocationTags(); len(tags) > 0 {
		t.Fatalf("tags: %v", tags)
	}
	if slices.Contains(core.Log(), "acknowledged plain on n1") {
		t.Fatal("acknowledged")
	}
}

func TestRejectionOfAnApplicationIsShownWhole(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	core.RefuseApplication = func(string) string { return "no-queue: queue 'root.nosuch': it does not exist" }
	remote := start(t, core, shim)
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "no application a: queue 'root.nosuch', it does not exist (no-queue)")
}

func TestReasonsAreShownWithoutColons(t *testing.T) {
	for reason, wanted := range map[string]string{
		"no-queue: queue 'root.a' is gone":            "queue 'root.a' is gone (no-queue)",
		"application-exists":                          "application-exists",
		"user alice may not submit: acl of root.prod": "user alice may not submit, acl of root.prod",
		"quota: asks for 10:1 of it":                  "asks for 10 1 of it (quota)",
	} {
		if got := ShowReason(reason); got != wanted {
			t.Errorf("%q is shown as %q", reason, got)
		}
	}
}

func TestConfigurationIsJudgedByTheCore(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	core.RefuseConfig = func(config string) error {
		if config == "bad" {
			return status.Error(codes.InvalidArgument, "partitions[0].queues[0]: invalid quantity")
		}
		return nil
	}
	remote := start(t, core, shim)
	err := remote.UpdateConfiguration(&si.UpdateConfigurationRequest{RmID: "mycluster", Config: "bad"})
	if err == nil || !strings.Contains(err.Error(), "invalid quantity") {
		t.Fatalf("a bad configuration: %v", err)
	}
	must(t, remote.UpdateConfiguration(&si.UpdateConfigurationRequest{RmID: "mycluster", Config: "better"}))
	if core.Config() != "better" {
		t.Fatalf("in force is %q", core.Config())
	}
	other := newRemote(core)
	defer other.Stop()
	if _, err := other.RegisterResourceManager(&si.RegisterResourceManagerRequest{RmID: "mycluster", Config: "bad"}, shim); err == nil {
		t.Fatal("registered with a bad configuration")
	}
}

func TestStopEndsARegistrationThatWaitsForItsCore(t *testing.T) {
	core := fakecore.New()
	core.Serve()
	core.Stop()
	remote := newRemote(core)
	registered := make(chan error, 1)
	go func() {
		_, err := remote.RegisterResourceManager(&si.RegisterResourceManagerRequest{RmID: "mycluster"}, newStandIn())
		registered <- err
	}()
	for _, known := remote.Status(); !known; _, known = remote.Status() {
		time.Sleep(time.Millisecond)
	}
	remote.Stop()
	select {
	case err := <-registered:
		if err == nil {
			t.Fatal("registered at nothing")
		}
	case <-time.After(deadline):
		t.Fatal("it still waits")
	}
}

func TestSupersededShimIsTold(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	remote := start(t, core, shim)
	core.EndCallbacks(status.Error(codes.Aborted, "superseded: mycluster has registered from another session"))
	select {
	case <-remote.Done():
	case <-time.After(deadline):
		t.Fatal("it was not told")
	}
	if !errors.Is(remote.Err(), kornel.ErrSuperseded) {
		t.Fatalf("ended with %v", remote.Err())
	}
}

func TestNoticesAndDumpsReachTheShim(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	start(t, core, shim)
	failed := si.UpdateContainerSchedulingStateRequest_FAILED
	core.Tell(&kornelv1.AttachResponse{
		SchedulingStates: []*si.UpdateContainerSchedulingStateRequest{{AllocationKey: "pod-1", State: failed}},
		Events:           []*si.EventRecord{{}, {}},
	})
	shim.waitFor(t, "pod-1 FAILED", "2 events")
	dump := <-core.Ask(&kornelv1.AttachResponse{StateDump: &kornelv1.StateDumpQuestion{}})[0]
	if dump.GetStateDump().GetJson() != `{"shim": "stand-in"}` {
		t.Fatalf("dump: %v", dump)
	}
}

func TestCoreThatIsKilledAndHasItsJournalIsNotToldAgain(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	core.Resumes = true
	remote := start(t, core, shim)
	must(t, remote.UpdateNode(node("n1")))
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "node n1", "application a")
	must(t, remote.UpdateAllocation(ask("before")))
	shim.waitFor(t, "before on n1")

	core.Block(false, true) // what is decided now does not leave the core any more
	must(t, remote.UpdateAllocation(ask("unheard")))
	if !core.WaitFor("ask unheard") {
		t.Fatalf("%v", core.Log())
	}
	core.Block(true, false) // and what arrives now is not recorded
	must(t, remote.UpdateAllocation(ask("lost")))
	core.Stop()
	core.Block(false, false)
	core.Serve()

	shim.waitFor(t, "unheard on n1", "lost on n1")
	for _, each := range []string{"before on n1", "unheard on n1", "lost on n1"} {
		shim.mu.Lock()
		found := len(slices.DeleteFunc(slices.Clone(shim.heard), func(entry string) bool { return entry != each }))
		shim.mu.Unlock()
		if found != 1 {
			t.Errorf("%q came %d times", each, found)
		}
	}
	if status, _ := remote.Status(); status.Registrations != 1 {
		t.Errorf("registered %d times", status.Registrations)
	}
}
