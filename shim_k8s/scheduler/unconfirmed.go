package scheduler

import (
	"sync"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"

	"kornel.internal/clients/go/kornel"
)

// unconfirmed remembers releases for which the core waits until the shim has stopped the containers.
type unconfirmed struct {
	mu       sync.Mutex
	releases map[string]*si.AllocationRelease
}

func (u *unconfirmed) note(release *si.AllocationRelease) {
	if !kornel.WantsConfirmation(release.GetTerminationType()) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.releases == nil {
		u.releases = map[string]*si.AllocationRelease{}
	}
	u.releases[release.GetAllocationKey()] = release
}

func (u *unconfirmed) forget(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.releases, key)
}

// list returns the releases that are not confirmed yet.
func (u *unconfirmed) list() []*si.AllocationRelease {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := make([]*si.AllocationRelease, 0, len(u.releases))
	for _, release := range u.releases {
		found = append(found, release)
	}
	return found
}

// clear removes all: a core to which everything is reported again decides anew.
func (u *unconfirmed) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.releases = nil
}
