// Package kornel is the client by which shims written in Go speak to a Kornel core.
//
// A shim is the side of a resource manager: it owns nodes, applications and containers, and asks the core where containers
// may run. The package offers it two levels.
//
// [Client] and [Session] are the lower one. [Client.Register] registers the resource manager and opens its three streams.
// [Session.AttachCallbacks] subscribes to the core's questions, and is to be called before the first node is created, so
// that nothing is placed unasked. Nodes, applications and allocations follow in this order, each kind after the answers to
// the one before, because nothing is promised about the order of messages on different streams. A stream that breaks is
// opened again. A session ends when that cannot help: [ErrResyncRequired] asks for another registration, after which
// everything has to be reported anew, and [ErrSuperseded] says that another program has registered as the same manager.
//
// [Shim] is the upper one. It remembers what was reported and decided in a [Mirror], registers again whenever it has to,
// and reports everything in the order of recovery. Its methods that report something never block.
//
// The messages of si.v1 are those of the interface's own Go package, and those of kornel.v1 are in package kornelv1.
package kornel
