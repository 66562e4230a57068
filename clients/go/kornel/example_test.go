package kornel_test

import (
	"context"
	"fmt"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornel"
	"kornel.internal/clients/go/kornelv1"
)

// connect returns a client of a scripted core in this process. A real one has an address and needs no dial option.
func connect() (*kornel.Client, func()) {
	core := fakecore.New()
	core.Serve()
	client, err := kornel.NewClient(kornel.Options{
		Address: fakecore.Address, RMID: "rm-1", DialOptions: []grpc.DialOption{core.Dialer()},
	})
	if err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close()
		core.Stop()
	}
}

var (
	node        = &si.NodeInfo{NodeID: "node-1", SchedulableResource: kornel.Amounts{"vcore": 4000}.Resource(), Action: si.NodeInfo_CREATE}
	application = &si.AddApplicationRequest{
		ApplicationID: "app-1", QueueName: "root.prod", Ugi: &si.UserGroupInformation{User: "jane", Groups: []string{"staff"}},
	}
	ask = kornel.Ask{Key: "task-1", ApplicationID: "app-1", Resources: kornel.Amounts{"vcore": 1000}}
)

// A shim reports a node, an application and an ask, each after the answer to the one before, and ends what was placed.
func ExampleShim() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()
	ended := make(chan struct{})
	var shim *kornel.Shim
	shim = kornel.NewShim(client, kornel.ShimOptions{Receive: func(update kornel.Update) {
		switch update := update.(type) {
		case kornel.NodeAccepted:
			fmt.Println(update.NodeID, "is known")
			shim.UpdateApplications(&si.ApplicationRequest{New: []*si.AddApplicationRequest{application}})
		case kornel.ApplicationAccepted:
			fmt.Println(update.ApplicationID, "is known")
			shim.UpdateAllocations(&si.AllocationRequest{Allocations: []*si.Allocation{ask.Allocation()}})
		case kornel.Allocated:
			fmt.Println(update.Key, "starts on", update.NodeID)
			end := kornel.ReleaseOf(update.ApplicationID, update.Key, si.TerminationType_STOPPED_BY_RM)
			shim.UpdateAllocations(&si.AllocationRequest{Releases: &si.AllocationReleasesRequest{
				AllocationsToRelease: []*si.AllocationRelease{end},
			}})
		case kornel.Released:
			fmt.Println(update.Key, "has ended")
			close(ended)
		}
	}})
	if err := shim.Start(ctx, kornel.Registration{}); err != nil {
		panic(err)
	}
	shim.UpdateNodes(node)
	<-ended
	_ = shim.Close(ctx)
	// Output:
	// node-1 is known
	// app-1 is known
	// task-1 starts on node-1
	// task-1 has ended
}

// A session gives the answers to nodes and applications as results, and all else over a channel.
func ExampleClient_Register() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()
	session, err := client.Register(ctx, kornel.Registration{})
	if err != nil {
		panic(err)
	}
	nodes, _ := session.CreateNodes(ctx, node)
	applications, _ := session.AddApplications(ctx, application)
	fmt.Printf("%+v %+v\n", nodes[0], applications[0])
	_ = session.ReportAllocations(ctx, ask.Allocation())
	for updates := range session.Updates() {
		for _, update := range updates {
			if allocated, ok := update.(kornel.Allocated); ok {
				fmt.Println(allocated.Key, "may start on", allocated.NodeID)
				_ = session.Close(ctx)
			}
		}
	}
	// Output:
	// {NodeID:node-1} {ApplicationID:app-1}
	// task-1 may start on node-1
}

// The core asks on which of the nodes that it considers an ask may run.
func ExampleCallbacks() {
	callbacks := kornel.Callbacks{Predicates: func(_ context.Context, question *kornelv1.PredicatesQuestion) kornel.Judgement {
		refusals := map[string]string{}
		for _, node := range question.GetNodeIds() {
			if node == "node-2" {
				refusals[node] = "it has no such volume"
			}
		}
		return kornel.Judgement{Refusals: refusals}
	}}
	question := &kornelv1.PredicatesQuestion{NodeIds: []string{"node-1", "node-2"}}
	fmt.Println(callbacks.Predicates(context.Background(), question).Refusals)
	// Output:
	// map[node-2:it has no such volume]
}

// An ask for two linked devices on one node, and what it becomes on the wire.
func ExampleAsk() {
	ask := kornel.Ask{
		Key: "task-1", ApplicationID: "app-1", Resources: kornel.Amounts{"vcore": 1000}, RequiredNode: "node-1",
		Devices: &kornel.Devices{Count: 2, Linked: true},
	}
	fmt.Println(ask.Allocation().GetAllocationTags())
	// Output:
	// map[kornel.gpu.count:2 kornel.gpu.link:same yunikorn.apache.org/requiredNode:node-1]
}
