// Package integration runs the Kubernetes shim itself, with informers of a clientset that has no API server behind it: pods
// are placed, and never bound.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/yunikorn-k8shim/pkg/conf"
	"github.com/apache/yunikorn-k8shim/pkg/shim"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	kornel "kornel/clients/go"
	"kornel/clients/go/fakecore"
	"kornel/shim_k8s/scheduler"
	"kornel/shim_k8s/tasks"
)

const (
	deadline  = 60 * time.Second
	namespace = "team"
	queues    = "partitions: [{name: default, placementrules: [{name: tag, value: namespace, create: true}], queues: [{name: root, submitacl: '*'}]}]"
	// Nothing listens there: a test that binds fails.
	kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none}]
current-context: none
`
)

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

// A cluster is a shim on nodes that are not there, at a core.
type cluster struct {
	t       *testing.T
	clients *fake.Clientset
	shim    *shim.KubernetesShim
	core    *fakecore.Core // nil for a real one
}

// run starts a shim on nodes of four CPUs. The core is that of KORNEL_ADDRESS, or a scripted one.
func run(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{t: t, clients: fake.NewClientset()}
	for n := range nodes {
		c.create(makeNode(fmt.Sprintf("node-%d", n), "4"))
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
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
	maps := []*v1.ConfigMap{nil, {Data: map[string]string{"queues.yaml": queues}}}
	if err := conf.UpdateConfigMaps(maps, true); err != nil {
		t.Fatal(err)
	}
	settings := conf.GetSchedulerConf()
	settings.KubeConfig = file
	remote := scheduler.New(options)
	c.shim = shim.NewShimSchedulerForPlugin(remote, informers.NewSharedInformerFactory(c.clients, 0), settings, maps)
	remote.DependsOnPlacements(tasks.DependOnPlacements(c.shim.GetContext))
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
func (c *cluster) nodesOf(application string, pods int) map[string]int {
	c.t.Helper()
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
	c.t.Fatalf("%s: of %d pods, placed are %v", application, pods, found)
	return nil
}

func TestPodsArePlaced(t *testing.T) {
	c := run(t, 3)
	for n := range 6 {
		c.create(makePod(fmt.Sprintf("plain-%d", n), "plain"))
	}
	c.nodesOf("plain", 6)
	if c.core == nil {
		return
	}
	// The shim cannot report again what a core has forgotten.
	c.core.Restart()
	c.create(makePod("later-0", "later"))
	c.nodesOf("later", 1)
	log := c.core.Since("register")
	placed := 0
	for _, entry := range log {
		var key, node string
		if n, _ := fmt.Sscanf(entry, "allocation %s on %s", &key, &node); n == 2 {
			placed++
		}
	}
	if placed != 6 {
		t.Fatalf("told of %d allocations: %v", placed, log)
	}
}

func TestPodsThatMustNotShareANodeDoNot(t *testing.T) {
	const pods = 10
	c := run(t, pods)
	if c.core != nil {
		t.Skip("the scripted core asks nothing: KORNEL_ADDRESS names no real one")
	}
	for n := range pods {
		c.create(apart(makePod(fmt.Sprintf("apart-%d", n), "apart")))
	}
	if found := c.nodesOf("apart", pods); len(found) != pods {
		t.Fatalf("%d pods on %v", pods, found)
	}
}
