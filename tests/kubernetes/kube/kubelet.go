package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Annotations by which a test says how the containers of a pod behave.
const (
	runFor  = "kornel.test/run-for"  // seconds after which they end well; without it they run until they are stopped
	stopFor = "kornel.test/stop-for" // seconds that they take to stop
)

// A kubelet does for all nodes what a kubelet does for one: it admits pods that were bound, starts and stops them.
type kubelet struct {
	client kubernetes.Interface
	nodes  cache.Store

	mu      sync.Mutex
	running map[types.UID]*v1.Pod // admitted, and not gone yet
	stops   map[types.UID]bool    // being stopped
	output  *json.Encoder
}

// A report is one line of output: a pod was started, refused, stopped or ended.
type report struct {
	What   string `json:"what"`
	UID    string `json:"uid"`
	Name   string `json:"name"`
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
}

func runPods(arguments []string) error {
	flags := flag.NewFlagSet("kubelet", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how the API server is reached")
	_ = flags.Parse(arguments)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 5000, 5000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, pods := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()
	k := &kubelet{
		client:  client,
		nodes:   nodes.GetStore(),
		running: map[types.UID]*v1.Pod{},
		stops:   map[types.UID]bool{},
		output:  json.NewEncoder(os.Stdout),
	}
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced)
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(found any) { k.see(ctx, found.(*v1.Pod)) },
		UpdateFunc: func(_, found any) { k.see(ctx, found.(*v1.Pod)) },
		DeleteFunc: func(found any) {
			if gone, ok := found.(cache.DeletedFinalStateUnknown); ok {
				found = gone.Obj
			}
			k.forget(found.(*v1.Pod), "gone")
		},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (k *kubelet) see(ctx context.Context, pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	if pod.DeletionTimestamp != nil {
		k.stop(ctx, pod)
		return
	}
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		k.forget(pod, "ended")
		return
	}
	k.mu.Lock()
	_, known := k.running[pod.UID]
	reason := ""
	if !known {
		if reason = k.refuse(pod); reason == "" {
			k.running[pod.UID] = pod
			k.report("started", pod, "")
		} else {
			k.report("refused", pod, reason)
		}
	}
	k.mu.Unlock()
	switch {
	case reason != "":
		go k.set(ctx, pod, v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: "the node does not admit the pod"})
	case pod.Status.Phase != v1.PodRunning:
		if !known {
			go k.start(ctx, pod)
		}
	}
}

// refuse returns why the node does not admit a pod, as a kubelet looks at it once more: room, ports, labels. mu is held.
func (k *kubelet) refuse(pod *v1.Pod) string {
	found, exists, _ := k.nodes.GetByKey(pod.Spec.NodeName)
	if !exists {
		return ""
	}
	node := found.(*v1.Node)
	for label, value := range pod.Spec.NodeSelector {
		if node.Labels[label] != value {
			return "NodeAffinity"
		}
	}
	used := v1.ResourceList{v1.ResourcePods: resource.MustParse("1")}
	addRequests(used, pod)
	ports := portsOf(pod)
	for _, other := range k.running {
		if other.Spec.NodeName != pod.Spec.NodeName {
			continue
		}
		addRequests(used, other)
		add(used, v1.ResourcePods, resource.MustParse("1"))
		for port := range portsOf(other) {
			if ports[port] {
				return "NodePorts"
			}
		}
	}
	for name, amount := range used {
		if room := node.Status.Allocatable[name]; amount.Cmp(room) > 0 {
			return "OutOf" + string(name)
		}
	}
	return ""
}

func addRequests(used v1.ResourceList, pod *v1.Pod) {
	for _, container := range pod.Spec.Containers {
		for name, amount := range container.Resources.Requests {
			add(used, name, amount)
		}
	}
}

func add(used v1.ResourceList, name v1.ResourceName, amount resource.Quantity) {
	sum := used[name].DeepCopy()
	sum.Add(amount)
	used[name] = sum
}

func portsOf(pod *v1.Pod) map[string]bool {
	ports := map[string]bool{}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				ports[fmt.Sprint(port.Protocol, port.HostPort)] = true
			}
		}
	}
	return ports
}

func (k *kubelet) start(ctx context.Context, pod *v1.Pod) {
	now := metav1.Now()
	k.set(ctx, pod, v1.PodStatus{
		Phase:     v1.PodRunning,
		StartTime: &now,
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue},
		},
	})
	if seconds, err := strconv.ParseFloat(pod.Annotations[runFor], 64); err == nil {
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
			k.set(ctx, pod, v1.PodStatus{Phase: v1.PodSucceeded})
		case <-ctx.Done():
		}
	}
}

// stop has a pod gone once its containers have stopped.
func (k *kubelet) stop(ctx context.Context, pod *v1.Pod) {
	k.mu.Lock()
	again := k.stops[pod.UID]
	k.stops[pod.UID] = true
	k.mu.Unlock()
	if again {
		return
	}
	go func() {
		seconds, _ := strconv.ParseFloat(pod.Annotations[stopFor], 64)
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		case <-ctx.Done():
			return
		}
		now := int64(0)
		options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		persist(ctx, func() error { return k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options) })
	}()
}

func (k *kubelet) set(ctx context.Context, pod *v1.Pod, status v1.PodStatus) {
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	persist(ctx, func() error {
		_, err := k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// persist calls until it works, the pod is not there any more, or another one has its name.
func persist(ctx context.Context, call func() error) {
	for ctx.Err() == nil {
		err := call()
		if err == nil || errors.IsNotFound(err) || errors.IsConflict(err) || errors.IsInvalid(err) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (k *kubelet) forget(pod *v1.Pod, what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.running[pod.UID]; known {
		k.report(what, pod, "")
	}
	delete(k.running, pod.UID)
	if what == "gone" {
		delete(k.stops, pod.UID)
	}
}

func (k *kubelet) report(what string, pod *v1.Pod, reason string) {
	_ = k.output.Encode(report{what, string(pod.UID), pod.Namespace + "/" + pod.Name, pod.Spec.NodeName, reason})
}
