package kornel

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/common"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

// Amounts are amounts of resources by type in base units: vcore in thousandths of a core, memory in bytes.
type Amounts map[string]int64

// Resource returns the wire form of the amounts.
func (a Amounts) Resource() *si.Resource {
	resources := make(map[string]*si.Quantity, len(a))
	for name, amount := range a {
		resources[name] = &si.Quantity{Value: amount}
	}
	return &si.Resource{Resources: resources}
}

// TagDependsOnPlacements, with the value true, is the tag of an ask whose nodes depend on where other asks are placed.
const TagDependsOnPlacements = "kornel.dependsOnPlacements"

// TagRequiredNode is the tag of an ask that runs on the node that it names, or not at all.
const TagRequiredNode = common.DomainYuniKorn + common.KeyRequiredNode

// Tags of an ask that say where in the topology of the partition its task group is to run.
const (
	TagTopologyRequired  = "kornel.topology.required"
	TagTopologyPreferred = "kornel.topology.preferred"
	TagTopologySpread    = "kornel.topology.spread"
	TagTopologySliceSize = "kornel.topology.sliceSize"
)

// The attribute of a node that lists its devices, and the tags of an ask that wants some.
const (
	AttributeDevices = "kornel.devices"
	TagGPUCount      = "kornel.gpu.count"
	TagGPUFraction   = "kornel.gpu.fraction"
	TagGPUMemory     = "kornel.gpu.memory"
	TagGPULink       = "kornel.gpu.link"
	TagGPUType       = "kornel.gpu.type"
	// TagGPUDevices is the tag with which the core says which devices an allocation holds. Report it with the allocation.
	TagGPUDevices = "kornel.gpu.devices"

	gpuTags = "kornel.gpu."
)

// A Device is one device of a node. Its value in JSON is an entry of the list in AttributeDevices.
type Device struct {
	ID   string `json:"id"`
	Type string `json:"type,omitempty"`
	// Memory is in bytes. Zero: not reported.
	Memory int64 `json:"memory,omitempty"`
	// Link is the group of devices that it is linked with.
	Link string `json:"link,omitempty"`
}

// DevicesAttribute returns the value of AttributeDevices for a node that has these devices and no others.
func DevicesAttribute(devices []Device) string {
	if len(devices) == 0 {
		return ""
	}
	text, err := json.Marshal(devices)
	if err != nil { // Texts and numbers can always be written.
		panic(err)
	}
	return string(text)
}

// DevicesOf returns the IDs of the devices that an allocation, as the core announced it, holds on its node.
func DevicesOf(allocation *si.Allocation) []string {
	devices := allocation.GetAllocationTags()[TagGPUDevices]
	if devices == "" {
		return nil
	}
	return strings.Split(devices, ",")
}

// Devices describes the devices that an ask wants on its node. Exactly one of the first three fields says how much.
type Devices struct {
	// Count is the number of whole devices.
	Count int
	// Fraction is the part of one device, such as 0.25.
	Fraction float64
	// Memory is the amount of the memory of one device, such as 16Gi.
	Memory string
	// Linked requires that all of the devices are in one link group.
	Linked bool
	// Types are the types of device that the ask accepts. None: all types.
	Types []string
}

func (d Devices) addTo(tags map[string]string) {
	if d.Count > 0 {
		tags[TagGPUCount] = strconv.Itoa(d.Count)
	}
	if d.Fraction > 0 {
		tags[TagGPUFraction] = strconv.FormatFloat(d.Fraction, 'f', 3, 64)
	}
	if d.Memory != "" {
		tags[TagGPUMemory] = d.Memory
	}
	if d.Linked {
		tags[TagGPULink] = "same"
	}
	if len(d.Types) > 0 {
		tags[TagGPUType] = strings.Join(d.Types, ",")
	}
}

// A Topology says where in the topology a task group is to run; all of its asks say the same. Exactly one of the first
// three fields names a level.
type Topology struct {
	// Required is the level of which all members must run in one domain; otherwise they wait.
	Required string
	// Preferred is the level of which the members should run in as few domains as possible.
	Preferred string
	// Spread is the level over whose domains the members are placed in turn.
	Spread string
	// SliceSize is the number of members that are placed together. Zero: all members or, with Spread, one.
	SliceSize int
}

func (t Topology) addTo(tags map[string]string) {
	for tag, level := range map[string]string{
		TagTopologyRequired: t.Required, TagTopologyPreferred: t.Preferred, TagTopologySpread: t.Spread,
	} {
		if level != "" {
			tags[tag] = level
		}
	}
	if t.SliceSize > 0 {
		tags[TagTopologySliceSize] = strconv.Itoa(t.SliceSize)
	}
}

// An Ask is a request for room for one task.
type Ask struct {
	// Key is unique within the partition.
	Key           string
	ApplicationID string
	Resources     Amounts
	Priority      int32
	// MayNotBePreempted makes the task a victim of last resort.
	MayNotBePreempted bool
	// MayPreempt lets the ask take the room of others.
	MayPreempt  bool
	Originator  bool
	TaskGroup   string
	Placeholder bool
	Partition   string
	// DependsOnPlacements says that the nodes on which this ask may run depend on where others are placed. The core asks about
	// such asks one at a time, and waits for [Session.Acknowledge] in between.
	DependsOnPlacements bool
	// RequiredNode is the one node on which the ask may run; empty: the core finds one.
	RequiredNode string
	// Topology says where the task group of the ask is to run; nil: anywhere.
	Topology *Topology
	// Devices are what the ask requests of the devices of its node; nil: none.
	Devices *Devices
	// Created is only needed for tasks that existed before this shim did. Zero: the core takes the time at which the ask
	// arrives.
	Created time.Time
	Tags    map[string]string
}

// Allocation returns the ask as the core takes it, which is an allocation without a node. The preemption policy is always
// sent, so that the core's default for an absent one never applies.
func (a Ask) Allocation() *si.Allocation {
	tags := make(map[string]string, len(a.Tags)+2)
	for key, value := range a.Tags {
		tags[key] = value
	}
	if !a.Created.IsZero() {
		tags[common.CreationTime] = strconv.FormatInt(a.Created.Unix(), 10)
	}
	if a.DependsOnPlacements {
		tags[TagDependsOnPlacements] = "true"
	}
	if a.RequiredNode != "" {
		tags[TagRequiredNode] = a.RequiredNode
	}
	if a.Topology != nil {
		a.Topology.addTo(tags)
	}
	if a.Devices != nil {
		a.Devices.addTo(tags)
	}
	return &si.Allocation{
		AllocationKey:    a.Key,
		ApplicationID:    a.ApplicationID,
		PartitionName:    a.Partition,
		ResourcePerAlloc: a.Resources.Resource(),
		Priority:         a.Priority,
		TaskGroupName:    a.TaskGroup,
		Placeholder:      a.Placeholder,
		Originator:       a.Originator,
		PreemptionPolicy: &si.PreemptionPolicy{AllowPreemptSelf: !a.MayNotBePreempted, AllowPreemptOther: a.MayPreempt},
		AllocationTags:   tags,
	}
}

// ReleaseOf returns the release of one allocation: its end ([si.TerminationType_STOPPED_BY_RM]), or the confirmation of an
// end that the core has started, for which termination is the type that the core gave.
func ReleaseOf(applicationID, key string, termination si.TerminationType) *si.AllocationRelease {
	return &si.AllocationRelease{ApplicationID: applicationID, AllocationKey: key, TerminationType: termination}
}

// WantsConfirmation tells whether the core keeps the room of an allocation booked until the shim confirms its release with
// the same type. Any other release needs no confirmation.
func WantsConfirmation(termination si.TerminationType) bool {
	switch termination {
	case si.TerminationType_PREEMPTED_BY_SCHEDULER, si.TerminationType_TIMEOUT, si.TerminationType_PLACEHOLDER_REPLACED:
		return true
	}
	return false
}

// isForeign tells whether an allocation was made by another scheduler.
func isForeign(allocation *si.Allocation) bool {
	_, found := allocation.GetAllocationTags()[common.Foreign]
	return found
}
