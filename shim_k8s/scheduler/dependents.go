package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// overtakenTimeout is how long a dependent question waits for places that were promised before a rule was known. The core need
// not take such a place, and then it is waited for in vain, once.
const overtakenTimeout = 2 * time.Second

// dependents tells which pods depend on where others run: by a rule of their own, or because a rule of another pod that the core
// knows is about them. A pod that depends once does so until it ends, so that each of its placements is acknowledged.
type dependents struct {
	mu   sync.Mutex
	find func(key string) *v1.Pod
	// rules has each different rule once, as many pods of one owner have the same: by namespace, "" for those about all, and name.
	rules map[string]map[string]*sharedRule
	// known has the names of the rules of each pod whose rules were read, and depending the pods that depend.
	known     map[string][]ruleName
	depending map[string]struct{}
	// promised has the pods that did not depend when the shim said yes, and whose placement has not come yet.
	promised map[string]struct{}
	// overtaken has those of them that a rule which came later is about, and settled is closed when there are none any more.
	overtaken map[string]struct{}
	settled   chan struct{}
	patience  time.Duration
}

type ruleName struct{ namespace, selector string }

type sharedRule struct {
	rule
	owners int
}

func newDependents() *dependents {
	return &dependents{
		find:      func(string) *v1.Pod { return nil },
		rules:     map[string]map[string]*sharedRule{},
		known:     map[string][]ruleName{},
		depending: map[string]struct{}{},
		promised:  map[string]struct{}{},
		overtaken: map[string]struct{}{},
		patience:  overtakenTimeout,
	}
}

// add keeps the rules of a pod in mind until it is forgotten, and tells whether it depends on where others run.
func (d *dependents) add(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod := d.find(key)
	if pod == nil {
		return false
	}
	if _, found := d.known[key]; !found {
		d.read(key, pod)
	}
	return d.judge(key, pod)
}

// depends tells whether the pod of an ask depends on where others run.
func (d *dependents) depends(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod := d.find(key)
	return pod != nil && d.judge(key, pod)
}

// hasClaims tells whether the pod of an ask has claims of devices.
func (d *dependents) hasClaims(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod := d.find(key)
	return pod != nil && len(pod.Spec.ResourceClaims) > 0
}

// reported returns the keys of all pods that were reported and have not been released.
func (d *dependents) reported() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := make(map[string]bool, len(d.known))
	for key := range d.known {
		found[key] = true
	}
	return found
}

// mayDepend tells whether the core may wait for the placement of the pod, which may be gone.
func (d *dependents) mayDepend(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod := d.find(key)
	return pod == nil || d.judge(key, pod)
}

func (d *dependents) judge(key string, pod *v1.Pod) bool {
	if _, found := d.depending[key]; found {
		return true
	}
	if !dependsOnPlacements(pod) && !d.isAnyAbout(pod, pod.Namespace) && !d.isAnyAbout(pod, "") {
		return false
	}
	if _, found := d.known[key]; found {
		d.depending[key] = struct{}{}
	}
	return true
}

func (d *dependents) isAnyAbout(pod *v1.Pod, namespace string) bool {
	for _, each := range d.rules[namespace] {
		if each.matches(pod) {
			return true
		}
	}
	return false
}

func (d *dependents) read(key string, pod *v1.Pod) {
	names := []ruleName{}
	for _, each := range rulesAbout(pod) {
		namespaces := each.namespaces
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			name := ruleName{namespace, each.selector.String()}
			names = append(names, name)
			if d.rules[name.namespace] == nil {
				d.rules[name.namespace] = map[string]*sharedRule{}
			}
			shared := d.rules[name.namespace][name.selector]
			if shared == nil {
				shared = &sharedRule{rule: each}
				d.rules[name.namespace][name.selector] = shared
				d.overtake(each)
			}
			shared.owners++
		}
	}
	d.known[key] = names
}

// overtake notes who was promised a place before the rule was known.
func (d *dependents) overtake(about rule) {
	for key := range d.promised {
		if pod := d.find(key); pod != nil && about.matches(pod) {
			if len(d.overtaken) == 0 {
				d.settled = make(chan struct{})
			}
			d.overtaken[key] = struct{}{}
		}
	}
}

// promise notes that the shim may say yes to a pod that does not depend, before it judges its nodes.
func (d *dependents) promise(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.promised[key] = struct{}{}
}

// settle notes that the shim has taken over the placement of a pod, or that it will be asked again before there is one.
func (d *dependents) settle(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.release(key)
}

func (d *dependents) release(key string) {
	delete(d.promised, key)
	if _, found := d.overtaken[key]; found {
		delete(d.overtaken, key)
		if len(d.overtaken) == 0 {
			close(d.settled)
		}
	}
}

// settleAll forgets what was promised: a core to which everything is reported again asks anew.
func (d *dependents) settleAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.promised)
	if len(d.overtaken) > 0 {
		clear(d.overtaken)
		close(d.settled)
	}
}

// await waits until the shim has taken over what was promised before the rules were known by which it is judged now.
func (d *dependents) await(ctx context.Context) {
	d.mu.Lock()
	overtaken, settled := slices.Collect(maps.Keys(d.overtaken)), d.settled
	d.mu.Unlock()
	if len(overtaken) == 0 {
		return
	}
	select {
	case <-settled:
	case <-time.After(d.patience):
		for _, key := range overtaken {
			d.settle(key)
		}
	case <-ctx.Done():
	}
}

// forget drops what is known of a pod that has ended.
func (d *dependents) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.release(key)
	delete(d.depending, key)
	for _, name := range d.known[key] {
		rules := d.rules[name.namespace]
		if rules[name.selector].owners--; rules[name.selector].owners == 0 {
			delete(rules, name.selector)
		}
		if len(rules) == 0 {
			delete(d.rules, name.namespace)
		}
	}
	delete(d.known, key)
}
