// Command example is a small shim: one node, one application, and tasks that run for a while. The first tasks are a gang.
//
//	go run ./example --core 127.0.0.1:50051
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"

	"kornel.internal/clients/go/kornel"
)

const (
	application = "app-1"
	gang        = "workers"
	queues      = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: example}]}]}]"
)

// A shim runs tasks of one core each. [kornel.Shim] remembers what it has reported, and reports it again to a core that has
// lost its state.
type shim struct {
	core        *kornel.Shim
	tasks, gang int
	runtime     time.Duration
	mu          sync.Mutex
	running     map[string]*time.Timer // nil for a placeholder, which has no end of its own
}

// receive takes what the core says: it adds the application once the node is there, asks for room once the application is
// there, starts tasks that were placed, and stops tasks that are released.
func (s *shim) receive(update kornel.Update) {
	switch update := update.(type) {
	case kornel.NodeAccepted:
		s.core.UpdateApplications(&si.ApplicationRequest{New: []*si.AddApplicationRequest{{
			ApplicationID: application,
			QueueName:     "root.example",
			Ugi:           &si.UserGroupInformation{User: "example", Groups: []string{"example"}},
			// The room that the gang waits for, and how long.
			PlaceholderAsk:               kornel.Amounts{"vcore": int64(1000 * s.gang)}.Resource(),
			ExecutionTimeoutMilliSeconds: time.Minute.Milliseconds(),
			GangSchedulingStyle:          "Soft",
		}}})
	case kornel.ApplicationAccepted:
		s.ask()
	case kornel.Allocated:
		log.Printf("%s runs on %s", update.Key, update.NodeID)
		s.start(update.Key, update.Message.GetPlaceholder())
	case kornel.Released:
		log.Printf("%s ends: %s", update.Key, update.Termination)
		s.stop(update.Key)
		if kornel.WantsConfirmation(update.Termination) {
			s.release(update.Key, update.Termination)
		}
	case kornel.AskRejected:
		log.Printf("%s is refused: %s", update.Key, update.Reason)
	}
}

func (s *shim) ask() {
	request := &si.AllocationRequest{}
	room := kornel.Amounts{"vcore": 1000}
	for n := range s.gang {
		ask := kornel.Ask{
			Key: fmt.Sprintf("placeholder-%d", n), ApplicationID: application, Resources: room, TaskGroup: gang, Placeholder: true,
		}
		request.Allocations = append(request.Allocations, ask.Allocation())
	}
	for n := range s.tasks {
		ask := kornel.Ask{Key: fmt.Sprintf("task-%d", n), ApplicationID: application, Resources: room}
		if n < s.gang {
			ask.TaskGroup = gang
		}
		request.Allocations = append(request.Allocations, ask.Allocation())
	}
	s.core.UpdateAllocations(request)
}

func (s *shim) start(key string, placeholder bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, runs := s.running[key]; runs {
		return // a decision may come twice
	}
	s.running[key] = nil
	if !placeholder {
		s.running[key] = time.AfterFunc(s.runtime, func() {
			if s.stop(key) {
				s.release(key, si.TerminationType_STOPPED_BY_RM)
			}
		})
	}
}

// stop ends a task, and tells whether it ran.
func (s *shim) stop(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	task, found := s.running[key]
	if task != nil {
		task.Stop()
	}
	delete(s.running, key)
	return found
}

func (s *shim) release(key string, termination si.TerminationType) {
	releases := []*si.AllocationRelease{kornel.ReleaseOf(application, key, termination)}
	s.core.UpdateAllocations(&si.AllocationRequest{Releases: &si.AllocationReleasesRequest{AllocationsToRelease: releases}})
}

func run(address, rmID string, s *shim) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := kornel.NewClient(kornel.Options{
		Address: address, RMID: rmID, Credentials: kornel.CredentialsFromEnvironment(),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	// Check S17 of the kit wants a shim to register again only when the core asks for it.
	s.core = kornel.NewShim(client, kornel.ShimOptions{Receive: s.receive, ReopenOnBreak: true})
	if err := s.core.Start(ctx, kornel.Registration{Config: queues}); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before the core could be reached
		}
		return err
	}
	s.core.UpdateNodes(&si.NodeInfo{
		NodeID: "node-1", Action: si.NodeInfo_CREATE, SchedulableResource: kornel.Amounts{"vcore": 4000}.Resource(),
	})
	select {
	case <-ctx.Done():
	case <-s.core.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.core.Close(ending)
}

func main() {
	address := flag.String("core", "127.0.0.1:50051", "address of the core, or of several with commas between them")
	rmID := flag.String("rm-id", "example", "name of the resource manager")
	tasks := flag.Int("tasks", 8, "how many tasks to run")
	gang := flag.Int("gang", 2, "how many of them are a gang, which starts together")
	runtime := flag.Duration("runtime", 30*time.Second, "how long each of them runs")
	flag.Parse()
	s := &shim{tasks: *tasks, gang: min(*gang, *tasks), runtime: *runtime, running: map[string]*time.Timer{}}
	if err := run(*address, *rmID, s); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
