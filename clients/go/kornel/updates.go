package kornel

import "github.com/apache/yunikorn-scheduler-interface/lib/go/si"

// A StreamKind is one of the streams of a session, by the name of its call.
type StreamKind string

// The streams of a session.
const (
	NodeStream        StreamKind = "UpdateNode"
	ApplicationStream StreamKind = "UpdateApplication"
	AllocationStream  StreamKind = "UpdateAllocation"
	CallbackStream    StreamKind = "Attach"
)

// An Update is one thing that the core says, as [Session.Updates] gives it: a [NodeAccepted], [NodeRejected],
// [ApplicationAccepted], [ApplicationRejected], [ApplicationUpdated], [Allocated], [Released], [AskRejected] or
// [StreamReopened].
type Update interface{ isUpdate() }

// NodeAccepted says that a node was created: allocations on it may be reported now.
type NodeAccepted struct{ NodeID string }

// NodeRejected says that a node was not created. The reason begins with a token of the contract, such as node-exists.
type NodeRejected struct{ NodeID, Reason string }

// ApplicationAccepted says that an application is known: its asks may be sent now.
type ApplicationAccepted struct{ ApplicationID string }

// ApplicationRejected says that an application was not added.
type ApplicationRejected struct{ ApplicationID, Reason string }

// ApplicationUpdated says that an application entered a state at a time in Unix nanoseconds.
type ApplicationUpdated struct {
	ApplicationID, State string
	AtNs                 int64
	Message              string
}

// Allocated says that an ask may start on a node, or confirms an allocation that the shim has reported.
type Allocated struct {
	Key, ApplicationID, NodeID string
	Message                    *si.Allocation
}

// Released says that an allocation ends. Where [WantsConfirmation] is true of its type, the shim stops the container and
// then confirms the release.
type Released struct {
	Key, ApplicationID string
	Termination        si.TerminationType
	Message            string
}

// AskRejected says that the core rejected an ask or a reported allocation.
type AskRejected struct{ Key, ApplicationID, Reason string }

// StreamReopened says that a stream broke and is open again. The core has kept its state, or has it from its journal. If the
// stream goes on exactly, nothing is lost and nothing comes twice. Otherwise, what the shim wrote just before the break may be
// lost: allocations, asks and releases may be sent again without harm.
type StreamReopened struct {
	Stream StreamKind
	Exact  bool
}

func (NodeAccepted) isUpdate()        {}
func (NodeRejected) isUpdate()        {}
func (ApplicationAccepted) isUpdate() {}
func (ApplicationRejected) isUpdate() {}
func (ApplicationUpdated) isUpdate()  {}
func (Allocated) isUpdate()           {}
func (Released) isUpdate()            {}
func (AskRejected) isUpdate()         {}
func (StreamReopened) isUpdate()      {}

// NodeUpdates returns the updates in one message of the node stream.
func NodeUpdates(response *si.NodeResponse) []Update {
	var updates []Update
	for _, each := range response.GetAccepted() {
		updates = append(updates, NodeAccepted{each.GetNodeID()})
	}
	for _, each := range response.GetRejected() {
		updates = append(updates, NodeRejected{each.GetNodeID(), each.GetReason()})
	}
	return updates
}

// ApplicationUpdates returns the updates in one message of the application stream.
func ApplicationUpdates(response *si.ApplicationResponse) []Update {
	var updates []Update
	for _, each := range response.GetAccepted() {
		updates = append(updates, ApplicationAccepted{each.GetApplicationID()})
	}
	for _, each := range response.GetRejected() {
		updates = append(updates, ApplicationRejected{each.GetApplicationID(), each.GetReason()})
	}
	for _, each := range response.GetUpdated() {
		updates = append(updates, ApplicationUpdated{
			each.GetApplicationID(), each.GetState(), each.GetStateTransitionTimestamp(), each.GetMessage(),
		})
	}
	return updates
}

// AllocationUpdates returns the updates in one message of the allocation stream.
func AllocationUpdates(response *si.AllocationResponse) []Update {
	var updates []Update
	for _, each := range response.GetNew() {
		updates = append(updates, Allocated{each.GetAllocationKey(), each.GetApplicationID(), each.GetNodeID(), each})
	}
	for _, each := range response.GetReleased() {
		updates = append(updates, Released{
			each.GetAllocationKey(), each.GetApplicationID(), each.GetTerminationType(), each.GetMessage(),
		})
	}
	for _, each := range response.GetRejectedAllocations() {
		updates = append(updates, AskRejected{each.GetAllocationKey(), each.GetApplicationID(), each.GetReason()})
	}
	return updates
}
