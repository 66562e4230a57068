// Package tasks looks pods up in the shim.
package tasks

import (
	"github.com/apache/yunikorn-k8shim/pkg/cache"

	"kornel/shim_k8s/scheduler"
)

// DependOnPlacements returns a function for [scheduler.Remote.DependsOnPlacements] that looks pods up in the shim's context.
func DependOnPlacements(context func() *cache.Context) func(applicationID, key string) bool {
	return func(applicationID, key string) bool {
		application := context().GetApplication(applicationID)
		if application == nil {
			return false
		}
		task := application.GetTask(key)
		return task != nil && task.GetTaskPod() != nil && scheduler.DependsOnPlacements(task.GetTaskPod())
	}
}
