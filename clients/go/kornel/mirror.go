package kornel

import (
	"cmp"
	"container/list"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/common"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"
)

// A Mirror remembers what a shim has reported and what the core has decided, so that it can be reported again to a core
// that has lost its state. It is not safe for concurrent use.
//
// Messages that are noted must not be changed afterwards.
type Mirror struct {
	nodes        map[string]*mirrorNode
	applications map[string]*mirrorApplication
	allocations  map[string]*mirrorAllocation
	foreign      map[string]*mirrorAllocation
	// books hold the allocations by application, so that no event looks at those of other applications.
	books  map[string]*mirrorBook
	placed int // the number of allocations that have a node
	order  uint64
}

// A mirrorBook holds the allocations of one application, in order.
type mirrorBook struct {
	entries list.List
	placed  int // the number of them that have a node
}

type mirrorNode struct {
	info        *si.NodeInfo
	schedulable bool
	accepted    bool // the shim has received its acceptance
	order       uint64
}

type mirrorApplication struct {
	request  *si.AddApplicationRequest
	accepted bool // the shim has received its acceptance
	order    uint64
	// again is a second application with the same ID, added when the end of the first one may still be on its way to the shim.
	again *mirrorApplication
}

type mirrorAllocation struct {
	allocation *si.Allocation
	node       string // empty: the ask is pending
	told       bool   // the shim has received its placement or confirmation
	// devices are the tags about devices with which the core announced it: a core that forgot it needs them again.
	devices map[string]string
	order   uint64
	// place is where its book has it; nil for a foreign allocation, which is in no book.
	place *list.Element
}

// takeDevices notes the tags about devices in the message with which the core announced the allocation.
func (a *mirrorAllocation) takeDevices(placed *si.Allocation) {
	if placed.GetAllocationTags()[TagGPUDevices] == "" {
		return
	}
	a.devices = map[string]string{}
	for tag, value := range placed.GetAllocationTags() {
		if strings.HasPrefix(tag, gpuTags) {
			a.devices[tag] = value
		}
	}
}

// withDevices returns allocation with the devices that the core has given it.
func (a *mirrorAllocation) withDevices(allocation *si.Allocation) *si.Allocation {
	if len(a.devices) == 0 {
		return allocation
	}
	allocation = proto.CloneOf(allocation)
	if allocation.AllocationTags == nil {
		allocation.AllocationTags = map[string]string{}
	}
	maps.Copy(allocation.AllocationTags, a.devices)
	return allocation
}

// NewMirror returns an empty mirror.
func NewMirror() *Mirror {
	return &Mirror{
		nodes:        map[string]*mirrorNode{},
		applications: map[string]*mirrorApplication{},
		allocations:  map[string]*mirrorAllocation{},
		foreign:      map[string]*mirrorAllocation{},
		books:        map[string]*mirrorBook{},
	}
}

// A MirrorSize counts what a mirror holds.
type MirrorSize struct{ Nodes, Applications, Asks, Allocations, Foreign int }

// Size returns how much the mirror holds.
func (m *Mirror) Size() MirrorSize {
	return MirrorSize{
		Nodes: len(m.nodes), Applications: len(m.applications), Foreign: len(m.foreign),
		Asks: len(m.allocations) - m.placed, Allocations: m.placed,
	}
}

func (m *Mirror) nextOrder() uint64 {
	m.order++
	return m.order
}

// NoteNodes notes nodes that the shim reports.
func (m *Mirror) NoteNodes(nodes ...*si.NodeInfo) {
	for _, info := range nodes {
		id := info.GetNodeID()
		known := m.nodes[id]
		switch action := info.GetAction(); action {
		case si.NodeInfo_CREATE, si.NodeInfo_CREATE_DRAIN:
			// The core refuses a node that exists already, and keeps its amounts.
			if known == nil {
				m.nodes[id] = &mirrorNode{info: info, schedulable: action == si.NodeInfo_CREATE, order: m.nextOrder()}
			}
		case si.NodeInfo_DECOMISSION:
			delete(m.nodes, id)
		case si.NodeInfo_UPDATE:
			if known != nil {
				known.info = updateNode(known.info, info)
			}
		case si.NodeInfo_DRAIN_NODE, si.NodeInfo_DRAIN_TO_SCHEDULABLE:
			if known != nil {
				known.schedulable = action == si.NodeInfo_DRAIN_TO_SCHEDULABLE
			}
		}
	}
}

// updateNode returns what is known of a node once an update is taken into account: devices and topology may change.
func updateNode(known, update *si.NodeInfo) *si.NodeInfo {
	changed := proto.CloneOf(known)
	if update.GetSchedulableResource() != nil {
		changed.SchedulableResource = update.GetSchedulableResource()
	}
	for name, value := range update.GetAttributes() {
		if name == common.NodePartition {
			continue
		}
		if changed.Attributes == nil {
			changed.Attributes = map[string]string{}
		}
		changed.Attributes[name] = value
	}
	return changed
}

// NoteApplications notes applications that the shim adds and removes.
func (m *Mirror) NoteApplications(request *si.ApplicationRequest) {
	for _, added := range request.GetNew() {
		next := &mirrorApplication{request: added, order: m.nextOrder()}
		if known := m.applications[added.GetApplicationID()]; known != nil {
			known.again = next
		} else {
			m.applications[added.GetApplicationID()] = next
		}
	}
	for _, removed := range request.GetRemove() {
		m.forgetApplication(removed.GetApplicationID())
	}
}

// NoteAllocations notes asks, allocations and releases that the shim reports.
func (m *Mirror) NoteAllocations(request *si.AllocationRequest) {
	for _, allocation := range request.GetAllocations() {
		m.noteAllocation(allocation)
	}
	for _, release := range request.GetReleases().GetAllocationsToRelease() {
		m.noteRelease(release)
	}
}

func (m *Mirror) noteAllocation(allocation *si.Allocation) {
	key, node := allocation.GetAllocationKey(), allocation.GetNodeID()
	if isForeign(allocation) {
		known := m.foreign[key]
		if known == nil {
			known = &mirrorAllocation{order: m.nextOrder()}
			m.foreign[key] = known
		}
		known.allocation, known.node = allocation, cmp.Or(node, known.node)
		return
	}
	known := m.allocations[key]
	if known != nil && known.allocation.GetApplicationID() != allocation.GetApplicationID() {
		m.forgetAllocation(key)
		known = nil
	}
	if known == nil {
		known = &mirrorAllocation{allocation: allocation, order: m.nextOrder()}
		m.allocations[key] = known
		application := allocation.GetApplicationID()
		if m.books[application] == nil {
			m.books[application] = &mirrorBook{}
		}
		known.place = m.books[application].entries.PushBack(known)
	}
	known.allocation = allocation
	if node != "" {
		m.setNode(known, node)
	}
}

// setNode notes the node of an allocation; empty: its ask is pending.
func (m *Mirror) setNode(known *mirrorAllocation, node string) {
	change := 0
	if node != "" {
		change++
	}
	if known.node != "" {
		change--
	}
	m.placed += change
	m.books[known.allocation.GetApplicationID()].placed += change
	known.node = node
}

// forgetAllocation removes an allocation or ask, if it is known.
func (m *Mirror) forgetAllocation(key string) {
	known := m.allocations[key]
	if known == nil {
		return
	}
	m.setNode(known, "")
	delete(m.allocations, key)
	application := known.allocation.GetApplicationID()
	book := m.books[application]
	book.entries.Remove(known.place)
	if book.entries.Len() == 0 {
		delete(m.books, application)
	}
}

func (m *Mirror) noteRelease(release *si.AllocationRelease) {
	key, application := release.GetAllocationKey(), release.GetApplicationID()
	switch {
	case application == "":
		delete(m.foreign, key)
	case key == "":
		m.forgetAllocations(application)
	case release.GetTerminationType() == schedulingFailedOnRM:
		// The container could not be started, so the ask is pending again.
		if known := m.allocations[key]; known != nil {
			m.setNode(known, "")
			known.told, known.devices = false, nil
			if known.allocation.GetNodeID() != "" {
				known.allocation = proto.CloneOf(known.allocation)
				known.allocation.NodeID = ""
			}
		}
	default:
		m.forgetAllocation(key)
	}
}

// schedulingFailedOnRM is a termination type of newer shims, which the interface's package does not name yet.
const schedulingFailedOnRM = si.TerminationType(5)

func (m *Mirror) forgetApplication(id string) {
	delete(m.applications, id)
	m.forgetAllocations(id)
}

func (m *Mirror) forgetAllocations(application string) {
	m.forgetBefore(application, math.MaxUint64)
}

// forgetBefore removes the allocations of an application that were first noted before a point in the order.
func (m *Mirror) forgetBefore(application string, order uint64) {
	book := m.books[application]
	if book == nil {
		return
	}
	for first := book.entries.Front(); first != nil; first = book.entries.Front() {
		each := first.Value.(*mirrorAllocation)
		if each.order >= order {
			return
		}
		m.forgetAllocation(each.allocation.GetAllocationKey())
	}
}

// endApplication removes an application that has ended. If an application with the same ID was added since, that one and
// its asks stay.
func (m *Mirror) endApplication(id string) {
	known := m.applications[id]
	if known == nil || known.again == nil {
		m.forgetApplication(id)
		return
	}
	m.forgetBefore(id, known.again.order)
	m.applications[id] = known.again
}

// TakeNodes notes the core's answers about nodes, and returns those that are new to the shim; nil: none. replaying is true
// while everything is reported again to a core that has lost its state: then earlier answers stand, even if the core now
// refuses the node; refused counts such nodes.
func (m *Mirror) TakeNodes(response *si.NodeResponse, replaying bool) (news *si.NodeResponse, refused int) {
	news = &si.NodeResponse{}
	for _, accepted := range response.GetAccepted() {
		if known := m.nodes[accepted.GetNodeID()]; known != nil && !known.accepted {
			known.accepted = true
			news.Accepted = append(news.Accepted, accepted)
		}
	}
	for _, rejected := range response.GetRejected() {
		known := m.nodes[rejected.GetNodeID()]
		if known != nil && known.accepted && replaying {
			refused++
			continue
		}
		if known != nil && !known.accepted {
			delete(m.nodes, rejected.GetNodeID())
		}
		news.Rejected = append(news.Rejected, rejected)
	}
	if len(news.Accepted)+len(news.Rejected) == 0 {
		return nil, refused
	}
	return news, refused
}

// TakeApplications does for applications what [Mirror.TakeNodes] does for nodes. An application that has ended is removed,
// and its ID is free again.
func (m *Mirror) TakeApplications(response *si.ApplicationResponse, replaying bool) (news *si.ApplicationResponse, refused int) {
	news = &si.ApplicationResponse{Updated: response.GetUpdated()}
	for _, accepted := range response.GetAccepted() {
		known := m.applications[accepted.GetApplicationID()]
		if known != nil && !known.accepted {
			known.accepted = true
			news.Accepted = append(news.Accepted, accepted)
		}
	}
	for _, rejected := range response.GetRejected() {
		id := rejected.GetApplicationID()
		known := m.applications[id]
		if replaying && known != nil && known.accepted && m.runsSomething(id) {
			refused++
			continue
		}
		switch {
		case known == nil:
		case replaying || !known.accepted:
			m.endApplication(id)
		default:
			// An application that is added twice is refused the second time, and the first one stays.
			known.again = nil
		}
		news.Rejected = append(news.Rejected, rejected)
	}
	for _, updated := range response.GetUpdated() {
		switch updated.GetState() {
		case "Completed", "Failed":
			m.endApplication(updated.GetApplicationID())
		}
	}
	if len(news.Accepted)+len(news.Rejected)+len(news.Updated) == 0 {
		return nil, refused
	}
	return news, refused
}

func (m *Mirror) runsSomething(application string) bool {
	book := m.books[application]
	return book != nil && book.placed > 0
}

// TakeAllocations does for allocations what [Mirror.TakeNodes] does for nodes. Confirmations of placements that the shim
// has received already are left out.
func (m *Mirror) TakeAllocations(response *si.AllocationResponse, replaying bool) (news *si.AllocationResponse, refused int) {
	news = &si.AllocationResponse{Released: response.GetReleased()}
	for _, placed := range response.GetNew() {
		known := m.allocations[placed.GetAllocationKey()]
		if known != nil {
			known.takeDevices(placed)
		}
		if known != nil && known.told && known.node == placed.GetNodeID() {
			continue
		}
		// The allocation ended while everything was being reported again, and its release is sent next. The shim must not start
		// it again.
		if known == nil && replaying {
			continue
		}
		if known != nil {
			m.setNode(known, placed.GetNodeID())
			known.told = true
		}
		news.New = append(news.New, placed)
	}
	for _, released := range response.GetReleased() {
		known := m.allocations[released.GetAllocationKey()]
		// An allocation that the shim has to stop is kept until the shim confirms. An ask is removed at once.
		if known != nil && (known.node == "" || !WantsConfirmation(released.GetTerminationType())) {
			m.forgetAllocation(released.GetAllocationKey())
		}
	}
	for _, rejected := range response.GetRejectedAllocations() {
		key := rejected.GetAllocationKey()
		known := m.allocations[key]
		if known != nil && known.told {
			// A refused resize does not end the allocation; nor does the refusal by a core that has lost its state.
			if replaying {
				refused++
				continue
			}
		} else {
			m.forgetAllocation(key)
		}
		news.RejectedAllocations = append(news.RejectedAllocations, rejected)
	}
	if len(news.New)+len(news.Released)+len(news.RejectedAllocations) == 0 {
		return nil, refused
	}
	return news, refused
}

// A Replay is what is reported to a core that has lost its state, in this order: nodes, which come closed, and
// applications, each with their answers; foreign and placed allocations, with the answers to the latter; asks; and which
// nodes are open.
type Replay struct {
	Nodes        []*si.NodeInfo
	Applications []*si.AddApplicationRequest
	Foreign      []*si.Allocation
	Placed       []*si.Allocation
	Asks         []*si.Allocation
	Open         []*si.NodeInfo
	// Lost are allocations on nodes that were removed while the core was away.
	Lost []*si.AllocationRelease
}

// Replay returns what is to be reported to a core that has lost its state. Lost allocations are removed from the mirror.
func (m *Mirror) Replay() *Replay {
	replay := &Replay{}
	busy := map[string]bool{}
	for _, each := range inOrder(m.allocations, func(each *mirrorAllocation) uint64 { return each.order }) {
		allocation := each.allocation
		switch {
		case each.node == "":
			replay.Asks = append(replay.Asks, allocation)
		case m.nodes[each.node] == nil:
			release := ReleaseOf(allocation.GetApplicationID(), allocation.GetAllocationKey(), si.TerminationType_STOPPED_BY_RM)
			release.PartitionName = allocation.GetPartitionName()
			release.Message = "the node was removed"
			replay.Lost = append(replay.Lost, release)
			m.forgetAllocation(allocation.GetAllocationKey())
		default:
			busy[allocation.GetApplicationID()] = true
			if allocation.GetNodeID() != each.node {
				allocation = proto.CloneOf(allocation)
				allocation.NodeID = each.node
			}
			allocation = each.withDevices(allocation)
			replay.Placed = append(replay.Placed, allocation)
		}
	}
	for _, each := range inOrder(m.foreign, func(each *mirrorAllocation) uint64 { return each.order }) {
		if m.nodes[each.node] != nil {
			replay.Foreign = append(replay.Foreign, each.allocation)
		}
	}
	for _, each := range inOrder(m.nodes, func(each *mirrorNode) uint64 { return each.order }) {
		closed := proto.CloneOf(each.info)
		closed.Action = si.NodeInfo_CREATE_DRAIN
		replay.Nodes = append(replay.Nodes, closed)
		if each.schedulable {
			replay.Open = append(replay.Open, &si.NodeInfo{
				NodeID: closed.GetNodeID(), Action: si.NodeInfo_DRAIN_TO_SCHEDULABLE, Attributes: closed.GetAttributes(),
			})
		}
	}
	for _, each := range inOrder(m.applications, func(each *mirrorApplication) uint64 { return each.order }) {
		if each.again != nil {
			// A core that has lost its state knows neither application, so only the second is reported.
			each.again.order = each.order
			each = each.again
			m.applications[each.request.GetApplicationID()] = each
		}
		request := each.request
		if busy[request.GetApplicationID()] {
			// Containers of the application run, so the core must accept it even if its queue would refuse it now.
			request = proto.CloneOf(request)
			if request.Tags == nil {
				request.Tags = map[string]string{}
			}
			request.Tags[common.AppTagCreateForce] = "true"
		}
		replay.Applications = append(replay.Applications, request)
	}
	return replay
}

func inOrder[Entry any](entries map[string]Entry, order func(Entry) uint64) []Entry {
	sorted := make([]Entry, 0, len(entries))
	for _, entry := range entries {
		sorted = append(sorted, entry)
	}
	slices.SortFunc(sorted, func(a, b Entry) int { return cmp.Compare(order(a), order(b)) })
	return sorted
}
