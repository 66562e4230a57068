// Package scheduler lets Apache YuniKorn's Kubernetes shim use a Kornel core over gRPC as if it were the core that the shim
// usually has in its own process.
//
// [Remote] implements the shim's api.SchedulerAPI. What the shim reports is remembered and sent without waiting, because
// the shim holds locks while it reports. It is sent again to a core that has lost its state, because the shim cannot do
// that itself. The shim's predicates answer the core's questions. Questions about pods that depend on where others run are
// answered one at a time.
package scheduler
