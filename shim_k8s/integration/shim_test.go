// Package integration runs the Kubernetes shim itself, with informers of a clientset that has no API server behind it: pods
// are placed, and never bound. The shim keeps state in variables of its packages, so all tests share one shim.
package integration

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/yunikorn-k8shim/pkg/conf"
	"github.com/apache/yunikorn-k8shim/pkg/plugin/predicates"
	"github.com/apache/yunikorn-k8shim/pkg/shim"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornel"
	"kornel/shim_k8s/scheduler"
	"kornel/shim_k8s/tasks"
)

const (
	deadline   = 60 * time.Second
	namespace  = "team"
	queues     = "partitions: [{name: default, placementrules: [{name: tag, value: namespace, create: true}], queues: [{name: root, submitacl: '*'}]}]"
	kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "%s"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none}]
current-context: none
`
)

// serveConfigMaps serves an API server without any objects. The shim reads ConfigMaps directly, and everything else through
// its informers.
func serveConfigMaps(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if !strings.HasSuffix(request.URL.Path, "/configmaps") {
			http.NotFound(response, request)
			return
		}
		response.Header().Set("Content-Type", "application/json")
		if request.URL.Query().Get("watch") != "" {
			response.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(response).Flush()
			<-request.Context().Done()
			return
		}
		_, _ = fmt.Fprint(response, `{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`)
	}))
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

func makeNode(name string, cpus string) *v1.Node {
	room := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("110"),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: v1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

func makePod(name, application string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID(name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{"applicationId": application, "app": application},
		},
		Spec: v1.PodSpec{
			SchedulerName: "yunikorn",
			Containers: []v1.Container{{
				Name:      "main",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func apart(pod *v1.Pod) *v1.Pod {
	term := v1.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pod.Labels["app"]}}}
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
	return pod
}

// A cluster is a shim with simulated nodes, connected to a core.
type cluster struct {
	t       testing.TB
	clients *fake.Clientset
	shim    *shim.KubernetesShim
	remote  *scheduler.Remote
	core    *fakecore.Core // nil for a real one
}

// run starts a shim with simulated nodes of so many CPUs each, after prepare has created other objects. The core is the one
// at KORNEL_ADDRESS or, without it, a scripted one.
func run(t testing.TB, nodes int, cpus string, prepare func(*cluster)) *cluster {
	t.Helper()
	c := &cluster{t: t, clients: fake.NewClientset()}
	c.create(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for n := range nodes {
		c.create(makeNode(fmt.Sprintf("node-%d", n), cpus))
	}
	prepare(c)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(kubeconfig, serveConfigMaps(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	options := scheduler.Options{Address: os.Getenv("KORNEL_ADDRESS"), Credentials: kornel.CredentialsFromEnvironment()}
	if options.Address == "" {
		c.core = fakecore.New()
		c.core.Serve()
		t.Cleanup(c.core.Stop)
		options.Address, options.DialOptions = fakecore.Address, []grpc.DialOption{c.core.Dialer()}
	}
	t.Setenv(conf.EnvKubeConfig, file)
	predicates.EnableOptionalKubernetesFeatureGates()
	maps := []*v1.ConfigMap{nil, {Data: map[string]string{"queues.yaml": queues}}}
	if err := conf.UpdateConfigMaps(maps, true); err != nil {
		t.Fatal(err)
	}
	settings := conf.GetSchedulerConf()
	settings.KubeConfig = file
	remote := scheduler.New(options)
	c.remote = remote
	c.shim = shim.NewShimSchedulerForPlugin(remote, informers.NewSharedInformerFactory(c.clients, 0), settings, maps)
	remote.FindPods(tasks.FindPods(c.shim.GetContext))
	started := make(chan error, 1)
	go func() { started <- c.shim.Run() }()
	select {
	case err := <-started:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(deadline):
		t.Fatal("the shim did not start")
	}
	t.Cleanup(func() {
		c.shim.Stop()
		remote.Stop()
	})
	return c
}

func (c *cluster) create(object any) {
	c.t.Helper()
	var err error
	switch object := object.(type) {
	case *v1.Namespace:
		_, err = c.clients.CoreV1().Namespaces().Create(context.Background(), object, metav1.CreateOptions{})
	case *v1.Node:
		_, err = c.clients.CoreV1().Nodes().Create(context.Background(), object, metav1.CreateOptions{})
	case *v1.Pod:
		_, err = c.clients.CoreV1().Pods(namespace).Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// nodesOf returns where the pods of an application were placed, once all of them are.
func (c *cluster) nodesOf(t testing.TB, application string, pods int) map[string]int {
	t.Helper()
	var found map[string]int
	for limit := time.Now().Add(deadline); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		known := c.shim.GetContext().GetApplication(application)
		if known == nil {
			continue
		}
		found = map[string]int{}
		placed := 0
		for n := range pods {
			if task := known.GetTask(fmt.Sprintf("%s-%d", application, n)); task != nil && task.GetNodeName() != "" {
				found[task.GetNodeName()]++
				placed++
			}
		}
		if placed == pods {
			return found
		}
	}
	t.Fatalf("%s: of %d pods, placed are %v", application, pods, found)
	return nil
}

func TestShim(t *testing.T) {
	const nodes = 10
	c := run(t, nodes, "4", func(*cluster) {})
	t.Run("places pods", func(t *testing.T) {
		for n := range 6 {
			c.create(makePod(fmt.Sprintf("plain-%d", n), "plain"))
		}
		c.nodesOf(t, "plain", 6)
	})
	t.Run("keeps pods apart that must not share a node", func(t *testing.T) {
		if c.core != nil {
			t.Skip("the scripted core asks nothing, and KORNEL_ADDRESS names no other one")
		}
		for n := range nodes {
			c.create(apart(makePod(fmt.Sprintf("apart-%d", n), "apart")))
		}
		if found := c.nodesOf(t, "apart", nodes); len(found) != nodes {
			t.Fatalf("%d pods on %v", nodes, found)
		}
	})
	t.Run("ends a pod whose name another one has", func(t *testing.T) {
		if c.core == nil {
			t.Skip("the journal of what is released is that of the scripted core")
		}
		pod := makePod("set-0", "set")
		c.create(pod)
		c.nodesOf(t, "set", 1)
		again := pod.DeepCopy()
		again.UID = "again"
		// A watch that was cut while a pod was made again tells of a change.
		if _, err := c.clients.CoreV1().Pods(namespace).Update(context.Background(), again, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		repairer := &tasks.Repairer{
			Context: c.shim.GetContext, Clients: c.clients, Logger: slog.Default(),
			Reported: c.remote.Reported, Unconfirmed: c.remote.Unconfirmed, Repeat: c.remote.Repeat, Repaired: c.remote.NoteRepair,
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go repairer.Run(ctx)
		if !c.core.WaitFor("ask again", "release set-0 STOPPED_BY_RM") {
			t.Fatalf("%v", c.core.Log())
		}
	})
	t.Run("tells a core that forgot", func(t *testing.T) {
		if c.core == nil {
			t.Skip("a real core is not restarted from here")
		}
		// YuniKorn's shim cannot report its state a second time, so the Remote has to.
		c.core.Restart()
		c.create(makePod("later-0", "later"))
		c.nodesOf(t, "later", 1)
		told := 0
		for _, entry := range c.core.Since("register") {
			if strings.HasPrefix(entry, "allocation plain-") {
				told++
			}
		}
		if told != 6 {
			t.Fatalf("told of %d allocations: %v", told, c.core.Since("register"))
		}
	})
}

// BenchmarkDependentPods measures how many pods per second are placed that must not share a node with others of their
// application: five applications of 200 pods on 200 nodes. All pods exist before the shim starts; the time is from the
// first placement to the last. It needs a real core, and -benchtime=1x.
func BenchmarkDependentPods(b *testing.B) {
	const applications, nodes = 5, 200
	if os.Getenv("KORNEL_ADDRESS") == "" {
		b.Skip("the scripted core asks nothing, and KORNEL_ADDRESS names no other one")
	}
	c := run(b, nodes, "16", func(c *cluster) {
		for application := range applications {
			name := fmt.Sprintf("apart-%d", application)
			for n := range nodes {
				c.create(apart(makePod(fmt.Sprintf("%s-%d", name, n), name)))
			}
		}
	})
	// Until the first placement the shim is still submitting pods, which it does once a second.
	first, began := c.waitForPlacements(b, 1)
	last, ended := c.waitForPlacements(b, applications*nodes)
	for application := range applications {
		if found := c.nodesOf(b, fmt.Sprintf("apart-%d", application), nodes); len(found) != nodes {
			b.Fatalf("%d pods on %d nodes", nodes, len(found))
		}
	}
	b.ReportMetric(float64(last-first)/ended.Sub(began).Seconds(), "pods/s")
}

// waitForPlacements waits until at least so many pods are placed, and returns their number and the time.
func (c *cluster) waitForPlacements(t testing.TB, pods int) (int, time.Time) {
	t.Helper()
	for limit := time.Now().Add(deadline); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if status, _ := c.remote.Status(); status.Mirror.Allocations >= pods {
			return status.Mirror.Allocations, time.Now()
		}
	}
	t.Fatalf("%d pods were not placed in %v", pods, deadline)
	return 0, time.Time{}
}
