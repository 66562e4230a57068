// Package tasks reads the shim's cache: it finds pods that depend on where others run, and pods that the shim has given up.
package tasks

import (
	"github.com/apache/yunikorn-k8shim/pkg/cache"
	v1 "k8s.io/api/core/v1"
)

// FindPods returns a function for [scheduler.Remote.FindPods] that looks pods up in the shim's cache. Of the shim's locks it
// takes only that of the cache, which the shim never holds while it calls its scheduler.
func FindPods(context func() *cache.Context) func(key string) *v1.Pod {
	return func(key string) *v1.Pod { return context().GetSchedulerCache().GetPod(key) }
}
