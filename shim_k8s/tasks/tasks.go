// Package tasks reads the shim's cache: it finds pods that depend on where others run, and pods that the shim has given up.
package tasks

import (
	"github.com/apache/yunikorn-k8shim/pkg/cache"

	"kornel/shim_k8s/scheduler"
)

// DependOnPlacements returns a function for [scheduler.Remote.DependsOnPlacements] that looks pods up in the shim's cache. Of the
// shim's locks it takes only that of the cache, which the shim never holds while it calls its scheduler.
func DependOnPlacements(context func() *cache.Context) func(key string) bool {
	return func(key string) bool {
		pod := context().GetSchedulerCache().GetPod(key)
		return pod != nil && scheduler.DependsOnPlacements(pod)
	}
}
