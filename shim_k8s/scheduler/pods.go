package scheduler

import v1 "k8s.io/api/core/v1"

// DependsOnPlacements tells whether the pod has rules, such as anti-affinity, by which its nodes depend on where other pods
// run.
func DependsOnPlacements(pod *v1.Pod) bool {
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
	return len(spec.ResourceClaims) > 0
}
