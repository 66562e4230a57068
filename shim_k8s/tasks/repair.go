package tasks

import (
	"context"
	"log/slog"
	"time"

	"github.com/apache/yunikorn-k8shim/pkg/cache"
	"github.com/apache/yunikorn-k8shim/pkg/common/events"
	"github.com/apache/yunikorn-k8shim/pkg/common/utils"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubecache "k8s.io/client-go/tools/cache"
)

const (
	lookInterval   = 5 * time.Second
	longestPause   = 5 * time.Minute
	requestTimeout = 10 * time.Second
)

// A Repairer does what the shim could not do because the API server did not answer, and would not do before its next start.
// The shim tries to bind a pod once: if that fails, it gives the pod up. It tries to delete a victim once: if that fails,
// the core waits for ever. And it drops a pod that comes while its application is being completed. A Repairer looks for
// such pods, reads each from the API server, and gives it to the shim as if it were new. So it does with pods that the core
// dropped with their node, if the node was made again. It also ends pods that went unseen and whose names others have by now:
// if the watch was cut, the shim takes these for changes of the former.
type Repairer struct {
	// Context returns the shim's context, which holds its applications and tasks.
	Context func() *cache.Context
	Clients kubernetes.Interface
	// Reported returns the UIDs of the pods that the core knows.
	Reported func() map[string]bool
	// Unconfirmed returns the releases that the core waits for, and Repeat hands one of them to the shim again.
	Unconfirmed func() []*si.AllocationRelease
	Repeat      func(*si.AllocationRelease)
	// Repaired is called for each pod that was taken up, or release that was repeated.
	Repaired func()
	Logger   *slog.Logger

	pods     kubecache.Store // by namespace and name
	reported map[string]bool // what Reported returned last
	suspects map[string]*suspect
}

// A suspect is a pod that may have been given up. It is repaired only if it is found twice, because the shim hears of pods
// and decisions at other moments than the Repairer.
type suspect struct {
	seen  time.Time
	due   time.Time
	pause time.Duration
}

// Run looks every few seconds, until ctx is done.
func (r *Repairer) Run(ctx context.Context) {
	// The shim's own informer cannot be used, because the shim changes the pods that it gets from there.
	factory := informers.NewSharedInformerFactoryWithOptions(r.Clients, 0, informers.WithTransform(keepOrigin))
	pods := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	if !kubecache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return
	}
	r.pods = pods.GetStore()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			r.look(ctx, now)
		case <-ctx.Done():
			return
		}
	}
}

func (r *Repairer) look(ctx context.Context, now time.Time) {
	r.reported = r.Reported()
	for _, found := range r.pods.List() {
		if pod := found.(*v1.Pod); pod.Spec.NodeName == "" && r.wasGivenUp(pod, false) && r.isDue(string(pod.UID), now) {
			r.takeUp(ctx, pod)
		}
	}
	placed, _ := r.Context().GetSchedulerCache().List(labels.Everything())
	for _, pod := range placed {
		if r.wasGivenUp(pod, true) && r.isDue(string(pod.UID), now) {
			r.takeUp(ctx, pod)
		}
	}
	for _, pod := range r.findReplaced() {
		if r.isDue("end of "+string(pod.UID), now) {
			r.endReplaced(ctx, pod)
		}
	}
	for _, release := range r.Unconfirmed() {
		if pod := r.Context().GetSchedulerCache().GetPod(release.GetAllocationKey()); pod != nil && pod.DeletionTimestamp == nil && r.isDue("release of "+string(pod.UID), now) {
			r.repeat(ctx, pod, release)
		}
	}
	for key, each := range r.suspects {
		if now.Sub(each.seen) > 2*longestPause {
			delete(r.suspects, key)
		}
	}
}

// findReplaced returns the pods that the core knows and whose names others have by now.
func (r *Repairer) findReplaced() []*v1.Pod {
	var found []*v1.Pod
	for uid := range r.reported {
		pod := r.Context().GetSchedulerCache().GetPod(uid)
		if pod == nil {
			continue
		}
		if named, exists, _ := r.pods.GetByKey(pod.Namespace + "/" + pod.Name); exists && named.(*v1.Pod).UID != pod.UID {
			found = append(found, pod)
		}
	}
	return found
}

// endReplaced tells the shim that a pod is gone if another one has its name according to the API server.
func (r *Repairer) endReplaced(ctx context.Context, pod *v1.Pod) {
	if !r.isGone(ctx, pod) {
		return
	}
	r.Logger.Warn("a pod went unseen, and another one has its name; it is ended", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "node", pod.Spec.NodeName)
	r.Context().DeletePod(pod)
	r.Repaired()
}

// isDue tells whether key was found before, and was last mended long enough ago.
func (r *Repairer) isDue(key string, now time.Time) bool {
	known := r.suspects[key]
	if known == nil {
		if r.suspects == nil {
			r.suspects = map[string]*suspect{}
		}
		known = &suspect{due: now.Add(lookInterval / 2), pause: lookInterval}
		r.suspects[key] = known
	}
	known.seen = now
	if now.Before(known.due) {
		return false
	}
	known.pause = min(2*known.pause, longestPause)
	known.due = now.Add(known.pause)
	return true
}

// wasGivenUp tells whether the shim has given a pod up. bound says whether the pod is bound according to the API server.
func (r *Repairer) wasGivenUp(pod *v1.Pod, bound bool) bool {
	id := utils.GetApplicationIDFromPod(pod)
	if id == "" || pod.DeletionTimestamp != nil || utils.IsPodTerminated(pod) || len(pod.Spec.SchedulingGates) > 0 {
		return false
	}
	application := r.Context().GetApplication(id)
	if application == nil {
		return true
	}
	if application.GetApplicationState() == cache.ApplicationStates().Failed {
		return false // the shim fails its pods
	}
	task := application.GetTask(string(pod.UID))
	if task == nil {
		return true
	}
	switch states := cache.TaskStates(); task.GetTaskState() {
	case states.Rejected, states.Killed, states.Failed, states.Completed:
		return true
	case states.Bound:
		// The shim believes that it bound the pod, but it is not bound according to the API server; or the core has dropped the
		// pod together with its node, which was made again.
		return !bound || !r.reported[string(pod.UID)]
	}
	return false
}

// takeUp removes a pod from the shim, and adds it again as the API server has it.
func (r *Repairer) takeUp(ctx context.Context, pod *v1.Pod) {
	fresh := r.read(ctx, pod)
	if fresh == nil {
		return
	}
	shim := r.Context()
	if known := shim.GetApplication(utils.GetApplicationIDFromPod(pod)); known != nil && fresh.Spec.NodeName != "" && r.reported[string(pod.UID)] {
		if task := known.GetTask(string(pod.UID)); task != nil && task.GetTaskState() == cache.TaskStates().Bound && task.GetNodeName() == fresh.Spec.NodeName {
			return // it has been bound meanwhile
		}
	}
	r.Logger.Warn("the shim has given up a pod, which is handed to it again", "pod", pod.Namespace+"/"+pod.Name, "node", fresh.Spec.NodeName)
	shim.RemoveTask(utils.GetApplicationIDFromPod(pod), string(pod.UID))
	// DeletePod would end the new task, too.
	shim.GetSchedulerCache().RemovePod(fresh)
	shim.AddPod(fresh)
	events.GetRecorder().Eventf(fresh.DeepCopy(), nil, v1.EventTypeWarning, "TakenUpAgain", "TakenUpAgain", "The scheduler had given the pod up, and takes it up again")
	r.Repaired()
	// If the pod was deleted meanwhile, the shim may have heard of that before AddPod.
	if r.isGone(ctx, pod) {
		shim.DeletePod(fresh)
	}
}

// repeat hands the release of a pod to the shim once more.
func (r *Repairer) repeat(ctx context.Context, pod *v1.Pod, release *si.AllocationRelease) {
	// The shim deletes by name, and another pod may have the name by now.
	if r.read(ctx, pod) == nil {
		return
	}
	r.Logger.Warn("the shim has not deleted a pod that has to go; its release is handed over again", "pod", pod.Namespace+"/"+pod.Name)
	r.Repeat(release)
	r.Repaired()
}

// read returns a pod as the API server has it, or nil if it does not answer, or the pod is on its way out.
func (r *Repairer) read(ctx context.Context, pod *v1.Pod) *v1.Pod {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh, err := r.Clients.CoreV1().Pods(pod.Namespace).Get(limited, pod.Name, metav1.GetOptions{})
	if err != nil || fresh.UID != pod.UID || fresh.DeletionTimestamp != nil || utils.IsPodTerminated(fresh) {
		return nil
	}
	return fresh
}

// keepOrigin leaves of a pod what tells whose it is and whether it was given up, because the shim has the rest in memory already.
func keepOrigin(object any) (any, error) {
	pod, isPod := object.(*v1.Pod)
	if !isPod {
		return object, nil
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, Annotations: pod.Annotations, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{SchedulerName: pod.Spec.SchedulerName, NodeName: pod.Spec.NodeName, SchedulingGates: pod.Spec.SchedulingGates},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func (r *Repairer) isGone(ctx context.Context, pod *v1.Pod) bool {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh, err := r.Clients.CoreV1().Pods(pod.Namespace).Get(limited, pod.Name, metav1.GetOptions{})
	return errors.IsNotFound(err) || err == nil && fresh.UID != pod.UID
}
