// Package scheduler makes a Kornel core that is reached over gRPC look to Apache YuniKorn's Kubernetes shim like the core that
// it usually has in its own process.
//
// [Remote] implements the shim's api.SchedulerAPI. What the shim reports is remembered and sent without waiting, because the
// shim holds locks while it reports; a core that has forgotten everything is told again, since the shim itself cannot do
// that. Questions of the core go to the shim's predicates, those about pods that depend on where others run one at a time.
package scheduler
