package groups

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const group = `
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: training, namespace: team}
spec: {schedulingPolicy: {gang: {minCount: 4}}}
---
`

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: learn, namespace: team}
spec:
  parallelism: 6
  template:
    spec:
      schedulingGroup: {podGroupName: training}
      nodeSelector: {disk: ssd}
      containers:
        - {name: main, resources: {requests: {cpu: 500m, memory: 1Gi}}}
        - {name: side, resources: {requests: {cpu: 1}}}
`

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: single, namespace: team, labels: {applicationId: mine}}
spec: {schedulingGroup: {podGroupName: training}, containers: [{name: main}]}
`

func annotated(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := Annotate(objects); err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestAMinCountBecomesTheMinimumOfAHardGang(t *testing.T) {
	objects := annotated(t, group+job)
	said, _, _ := unstructured.NestedStringMap(objects[1].Object, "spec", "template", "metadata", "annotations")
	if said[groupAnnotation] != "training" || said[styleAnnotation] != "gangSchedulingStyle=Hard" {
		t.Fatal(said)
	}
	var found []taskGroup
	if err := json.Unmarshal([]byte(said[listAnnotation]), &found); err != nil || len(found) != 1 {
		t.Fatal(said[listAnnotation], err)
	}
	made := found[0]
	if made.Name != "training" || made.MinMember != 4 || made.NodeSelector["disk"] != "ssd" {
		t.Error(made)
	}
	if made.MinResource["cpu"] != "1500m" || made.MinResource["memory"] != "1Gi" || len(made.MinResource) != 2 {
		t.Error(made.MinResource)
	}
	labels, _, _ := unstructured.NestedStringMap(objects[1].Object, "spec", "template", "metadata", "labels")
	if labels[idLabel] != "training" {
		t.Error(labels)
	}
}

func TestWhatAPodSaysItselfStays(t *testing.T) {
	objects := annotated(t, group+pod)
	if objects[1].GetLabels()[idLabel] != "mine" || objects[1].GetAnnotations()[groupAnnotation] != "training" {
		t.Error(objects[1].Object)
	}
}

func TestAGroupWithoutAMinimumIsAnApplicationAndNoGang(t *testing.T) {
	objects := annotated(t, strings.Replace(group, "gang: {minCount: 4}", "basic: {}", 1)+strings.Replace(pod, ", labels: {applicationId: mine}", "", 1))
	if objects[1].GetLabels()[idLabel] != "training" || len(objects[1].GetAnnotations()) != 0 {
		t.Error(objects[1].Object)
	}
}

func TestAGroupThatIsMissingIsAnError(t *testing.T) {
	objects, err := Read(strings.NewReader(strings.Replace(group, "namespace: team", "namespace: other", 1) + job))
	if err != nil {
		t.Fatal(err)
	}
	if err := Annotate(objects); err == nil || !strings.Contains(err.Error(), `Job learn: there is no PodGroup "training"`) {
		t.Error(err)
	}
}

func TestPodsWithoutAGroupStayAsTheyAre(t *testing.T) {
	objects := annotated(t, strings.Replace(pod, "schedulingGroup: {podGroupName: training}, ", "", 1))
	if len(objects[0].GetAnnotations()) != 0 {
		t.Error(objects[0].Object)
	}
}
