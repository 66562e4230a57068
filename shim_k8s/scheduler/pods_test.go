package scheduler

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPodsDependOnPlacements(t *testing.T) {
	required := []v1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}}
	preferred := []v1.WeightedPodAffinityTerm{{Weight: 1}}
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	port := func(port v1.ContainerPort) []v1.Container { return []v1.Container{{Ports: []v1.ContainerPort{port}}} }
	for name, each := range map[string]struct {
		spec    v1.PodSpec
		depends bool
	}{
		"nothing":                 {v1.PodSpec{}, false},
		"a selector":              {v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, false},
		"node affinity":           {v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}}, false},
		"anti-affinity":           {v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}}, true},
		"affinity":                {v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}}, true},
		"preferred anti-affinity": {v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}}, false},
		"spread that must hold":   {v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.DoNotSchedule}}}, true},
		"spread that may not":     {v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.ScheduleAnyway}}}, false},
		"a port":                  {v1.PodSpec{Containers: port(v1.ContainerPort{ContainerPort: 80})}, false},
		"a host port":             {v1.PodSpec{Containers: port(v1.ContainerPort{ContainerPort: 80, HostPort: 80})}, true},
		"a port on the host":      {v1.PodSpec{HostNetwork: true, Containers: port(v1.ContainerPort{ContainerPort: 80})}, true},
		"a claimed volume":        {v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: claim}}}, true},
		"an empty directory":      {v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}}, false},
	} {
		if got := dependsOnPlacements(&v1.Pod{Spec: each.spec}); got != each.depends {
			t.Errorf("%s: %v", name, got)
		}
	}
}
