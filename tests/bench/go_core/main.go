// Measures YuniKorn's core in this process on P18: full nodes, applications that wait, and tasks that end one by one.
//
// The core is an unmodified dependency. What it decides comes by its callback. The processor time is that of the whole
// process, so this program's own part, which hears and sends, counts for the core. Prints one line of JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/yunikorn-core/pkg/entrypoint"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

const (
	manager  = "bench"
	owners   = 40
	patience = 120 * time.Second
	seed     = 18
)

// observer hears what the core says.
type observer struct {
	placed   chan *si.Allocation
	accepted atomic.Int64
}

func (o *observer) UpdateAllocation(response *si.AllocationResponse) error {
	for _, allocation := range response.New {
		o.placed <- allocation
	}
	if len(response.RejectedAllocations) > 0 {
		fail("an ask was rejected: %v", response.RejectedAllocations[0])
	}
	return nil
}

func (o *observer) UpdateApplication(response *si.ApplicationResponse) error {
	if len(response.Rejected) > 0 {
		fail("an application was rejected: %v", response.Rejected[0])
	}
	o.accepted.Add(int64(len(response.Accepted)))
	return nil
}

func (o *observer) UpdateNode(response *si.NodeResponse) error {
	if len(response.Rejected) > 0 {
		fail("a node was rejected: %v", response.Rejected[0])
	}
	o.accepted.Add(int64(len(response.Accepted)))
	return nil
}

func (o *observer) Predicates(*si.PredicatesArgs) error { return nil }

func (o *observer) PreemptionPredicates(*si.PreemptionPredicatesArgs) *si.PreemptionPredicatesResponse {
	return &si.PreemptionPredicatesResponse{}
}

func (o *observer) SendEvent([]*si.EventRecord) {}

func (o *observer) UpdateContainerSchedulingState(*si.UpdateContainerSchedulingStateRequest) {}

type task struct{ application, key string }

// cluster is the shim's side of the world.
type cluster struct {
	core    api.SchedulerAPI
	hears   *observer
	dice    *rand.Rand
	leaves  int
	sizes   int
	made    int
	asked   int
	told    int64 // what has to be accepted
	running []task
	left    map[string]int // asks that wait, by application
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func usedSeconds() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func (c *cluster) size(number int) *si.Resource {
	return amounts(1000, int64(1+number%c.sizes)<<20)
}

func amounts(vcore, memory int64) *si.Resource {
	return &si.Resource{Resources: map[string]*si.Quantity{"vcore": {Value: vcore}, "memory": {Value: memory}}}
}

func (c *cluster) application(name string) *si.AddApplicationRequest {
	number := c.made
	c.made++
	return &si.AddApplicationRequest{
		ApplicationID: name,
		QueueName:     fmt.Sprintf("root.q%d", number%c.leaves),
		PartitionName: "default",
		Ugi: &si.UserGroupInformation{
			User: fmt.Sprintf("u%d", number%owners), Groups: []string{"bench"},
		},
	}
}

func (c *cluster) add(applications []*si.AddApplicationRequest) {
	check(c.core.UpdateApplication(&si.ApplicationRequest{RmID: manager, New: applications}))
	c.told += int64(len(applications))
	c.awaitAccepted()
}

func (c *cluster) awaitAccepted() {
	until := time.Now().Add(patience)
	for c.hears.accepted.Load() < c.told {
		if time.Now().After(until) {
			fail("%d of %d were accepted", c.hears.accepted.Load(), c.told)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (c *cluster) fill(nodes, cores int, order string, userCores int) {
	leaves := make([]string, c.leaves)
	for at := range leaves {
		leaves[at] = fmt.Sprintf("          - {name: q%d, properties: {application.sort.policy: %s}}", at, order)
	}
	limits := ""
	if userCores > 0 {
		users := make([]string, owners)
		for at := range users {
			users[at] = fmt.Sprintf("u%d", at)
		}
		limits = fmt.Sprintf(
			"        limits:\n          - {limit: each, users: [%s], maxresources: {vcore: '%d'}}\n",
			strings.Join(users, ", "), userCores)
	}
	config := "partitions:\n  - name: default\n    queues:\n      - name: root\n        submitacl: '*'\n" +
		limits + "        queues:\n" + strings.Join(leaves, "\n") + "\n"
	_, err := c.core.RegisterResourceManager(&si.RegisterResourceManagerRequest{
		RmID: manager, PolicyGroup: "queues", Version: "1", Config: config,
		ExtraConfig: map[string]string{"log.level": "ERROR"},
	}, c.hears)
	check(err)
	infos := make([]*si.NodeInfo, nodes)
	for at := range infos {
		infos[at] = &si.NodeInfo{
			NodeID: fmt.Sprintf("n%d", at), Action: si.NodeInfo_CREATE,
			SchedulableResource: amounts(int64(cores)*1000, 1<<50),
		}
	}
	check(c.core.UpdateNode(&si.NodeRequest{RmID: manager, Nodes: infos}))
	c.told += int64(nodes)
	c.awaitAccepted()
	added := make([]*si.AddApplicationRequest, owners)
	for at := range added {
		added[at] = c.application(fmt.Sprintf("run-%d", at))
	}
	c.add(added)
	tasks := make([]*si.Allocation, nodes*cores)
	for at := range tasks {
		tasks[at] = &si.Allocation{
			AllocationKey: fmt.Sprintf("task-%d", at), ApplicationID: added[at%owners].ApplicationID,
			PartitionName: "default", ResourcePerAlloc: c.size(0), NodeID: fmt.Sprintf("n%d", at/cores),
		}
		c.running = append(c.running, task{tasks[at].ApplicationID, tasks[at].AllocationKey})
	}
	check(c.core.UpdateAllocation(&si.AllocationRequest{RmID: manager, Allocations: tasks}))
	// Tasks that are reported as running may be told again.
	for heard := 0; heard < len(tasks); heard++ {
		select {
		case <-c.hears.placed:
		case <-time.After(3 * time.Second):
			return
		}
	}
}

// wait adds so many applications with two asks each, a thousand in each message.
func (c *cluster) wait(count int) {
	for count > 0 {
		now := min(count, 1000)
		count -= now
		added := make([]*si.AddApplicationRequest, now)
		var asks []*si.Allocation
		for at := range added {
			added[at] = c.application(fmt.Sprintf("app-%d", c.made))
			name := added[at].ApplicationID
			c.left[name] = 2
			for range 2 {
				c.asked++
				asks = append(asks, &si.Allocation{
					AllocationKey: fmt.Sprintf("ask-%d", c.asked), ApplicationID: name,
					PartitionName: "default", ResourcePerAlloc: c.size(c.asked),
				})
			}
		}
		c.add(added)
		check(c.core.UpdateAllocation(&si.AllocationRequest{RmID: manager, Allocations: asks}))
	}
}

// endOne ends a task and waits until its room is used, or nobody has used it for the time *unused*.
func (c *cluster) endOne(unused time.Duration) (served, placed int) {
	at := c.dice.Intn(len(c.running))
	ended := c.running[at]
	c.running[at] = c.running[len(c.running)-1]
	c.running = c.running[:len(c.running)-1]
	check(c.core.UpdateAllocation(&si.AllocationRequest{
		RmID: manager,
		Releases: &si.AllocationReleasesRequest{AllocationsToRelease: []*si.AllocationRelease{{
			PartitionName: "default", ApplicationID: ended.application, AllocationKey: ended.key,
			TerminationType: si.TerminationType_STOPPED_BY_RM,
		}}},
	}))
	timer := time.NewTimer(unused)
	defer timer.Stop()
	for {
		select {
		case allocation := <-c.hears.placed:
			placed++
			served += c.note(allocation)
		case <-timer.C:
			if placed == 0 {
				return served, placed
			}
		}
		if placed > 0 && len(c.hears.placed) == 0 {
			return served, placed
		}
	}
}

// note notes a placement, and returns 1 if its application waits for nothing more.
func (c *cluster) note(allocation *si.Allocation) int {
	c.running = append(c.running, task{allocation.ApplicationID, allocation.AllocationKey})
	c.left[allocation.ApplicationID]--
	if c.left[allocation.ApplicationID] > 0 {
		return 0
	}
	delete(c.left, allocation.ApplicationID)
	return 1
}

func main() {
	waiting := flag.Int("waiting", 1000, "applications that wait")
	leaves := flag.Int("leaves", 10, "leaves that they are in")
	order := flag.String("order", "fifo", "order of the applications of a leaf")
	sizes := flag.Int("sizes", 1, "sizes of asks")
	userCores := flag.Int("limit", 0, "cores that each user may have; 0: any number")
	ends := flag.Int("ends", 200, "ends")
	nodes := flag.Int("nodes", 20, "nodes")
	cores := flag.Int("cores", 100, "cores of each node")
	between := flag.Duration("between", 10*time.Millisecond, "time from one end to the next")
	settle := flag.Duration("settle", 2*time.Second, "time for the applications that wait to be tried")
	flag.Parse()
	c := &cluster{
		core: entrypoint.StartAllServices().RMProxy, hears: &observer{placed: make(chan *si.Allocation, 1<<20)},
		dice: rand.New(rand.NewSource(seed)), leaves: *leaves, sizes: *sizes, left: map[string]int{},
	}
	c.fill(*nodes, *cores, *order, *userCores)
	c.wait(*waiting)
	time.Sleep(*settle)
	for range 10 {
		served, _ := c.endOne(200 * time.Millisecond)
		c.wait(served)
	}
	time.Sleep(200 * time.Millisecond)
	placed := 0
	before, next := usedSeconds(), time.Now()
	for range *ends {
		served, heard := c.endOne(200 * time.Millisecond)
		placed += heard
		c.wait(served)
		next = next.Add(*between)
		time.Sleep(time.Until(next))
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"end_ms": (usedSeconds() - before) / float64(*ends) * 1e3, "placed": float64(placed) / float64(*ends),
	}))
}
