package tasks

import (
	"log/slog"

	"github.com/apache/yunikorn-k8shim/pkg/cache"
	"github.com/apache/yunikorn-k8shim/pkg/common/events"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	v1 "k8s.io/api/core/v1"
)

// reasonSkipped is the reason of the condition of a pod that more nodes would not help, so that autoscalers leave it alone.
const reasonSkipped = "SchedulingSkipped"

// WriteReasons returns a function for [scheduler.Remote.TellStates] that writes what the core says into the condition of a pod
// that waits, and into an event if more nodes would help it. The shim's own events say that resources or a quota are lacking,
// whatever it is.
func WriteReasons(context func() *cache.Context, update func(*v1.Pod) (*v1.Pod, error), logger *slog.Logger) func(*si.UpdateContainerSchedulingStateRequest) {
	return func(state *si.UpdateContainerSchedulingStateRequest) {
		application := context().GetApplication(state.GetApplicationID())
		if application == nil {
			return
		}
		task := application.GetTask(state.GetAllocationKey())
		if task == nil || task.GetTaskState() != cache.TaskStates().Scheduling {
			return
		}
		failed := state.GetState() == si.UpdateContainerSchedulingStateRequest_FAILED
		condition := &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reasonSkipped, Message: state.GetReason()}
		if failed {
			task.SetTaskSchedulingState(cache.TaskSchedFailed)
		}
		if task.GetTaskSchedulingState() == cache.TaskSchedFailed {
			condition.Reason = v1.PodReasonUnschedulable
		} else {
			task.SetTaskSchedulingState(cache.TaskSchedSkipped)
		}
		changed, pod := task.UpdatePodCondition(condition)
		if !changed {
			return
		}
		if _, err := update(pod); err != nil {
			logger.Warn("why a pod waits could not be written into it", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			return
		}
		if failed {
			events.GetRecorder().Eventf(pod, nil, v1.EventTypeNormal, "PodUnschedulable", "PodUnschedulable", "%s", state.GetReason())
		}
	}
}
