package scheduler

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// dependsOnPlacements tells whether the pod has rules, such as anti-affinity, by which its nodes depend on where other pods
// run.
func dependsOnPlacements(pod *v1.Pod) bool {
	spec := &pod.Spec
	if affinity := spec.Affinity; affinity != nil {
		if rule := affinity.PodAffinity; rule != nil && len(rule.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return true
		}
		if rule := affinity.PodAntiAffinity; rule != nil && len(rule.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return true
		}
	}
	for _, spread := range spec.TopologySpreadConstraints {
		if spread.WhenUnsatisfiable == v1.DoNotSchedule {
			return true
		}
	}
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for _, container := range containers {
			for _, port := range container.Ports {
				if port.HostPort != 0 || spec.HostNetwork {
					return true
				}
			}
		}
	}
	for _, volume := range spec.Volumes {
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
			return true
		}
	}
	return false
}

// A rule of one pod is about other pods: a required term of affinity or anti-affinity, or a spread that must hold.
type rule struct {
	namespaces []string // sorted; none: pods of every namespace
	selector   labels.Selector
}

func (r rule) matches(pod *v1.Pod) bool {
	if len(r.namespaces) > 0 && !slices.Contains(r.namespaces, pod.Namespace) {
		return false
	}
	return r.selector.Matches(labels.Set(pod.Labels))
}

// rulesAbout returns the rules of the pod by which the placement of other pods decides where it may run. They match at least
// those pods: what narrows a rule further, such as labels of namespaces, is left out.
func rulesAbout(pod *v1.Pod) []rule {
	var found []rule
	add := func(namespaces []string, selector *metav1.LabelSelector) {
		// The API server takes no selector that cannot be read; one that is missing matches nothing.
		if read, err := metav1.LabelSelectorAsSelector(selector); err == nil && selector != nil {
			found = append(found, rule{namespaces, read})
		}
	}
	var terms []v1.PodAffinityTerm
	if affinity := pod.Spec.Affinity; affinity != nil {
		if affinity.PodAffinity != nil {
			terms = append(terms, affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
		if affinity.PodAntiAffinity != nil {
			terms = append(terms, affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
	}
	for _, term := range terms {
		namespaces := slices.Sorted(slices.Values(term.Namespaces))
		switch {
		case term.NamespaceSelector != nil:
			namespaces = nil
		case len(namespaces) == 0:
			namespaces = []string{pod.Namespace}
		}
		add(namespaces, term.LabelSelector)
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if spread.WhenUnsatisfiable == v1.DoNotSchedule {
			add([]string{pod.Namespace}, spread.LabelSelector)
		}
	}
	return found
}
