// Package groups translates Kubernetes' own gangs, PodGroups of scheduling.k8s.io, into the annotations of YuniKorn. The shim
// cannot read them itself: the libraries of Kubernetes with which it builds have no field for the group of a pod.
package groups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	apiGroup        = "scheduling.k8s.io"
	groupAnnotation = "yunikorn.apache.org/task-group-name"
	listAnnotation  = "yunikorn.apache.org/task-groups"
	styleAnnotation = "yunikorn.apache.org/schedulingPolicyParameters"
	idLabel         = "applicationId"
)

// A taskGroup is what YuniKorn's annotation says of a gang.
type taskGroup struct {
	Name         string            `json:"name"`
	MinMember    int64             `json:"minMember"`
	MinResource  map[string]string `json:"minResource"`
	NodeSelector map[string]any    `json:"nodeSelector,omitempty"`
	Tolerations  []any             `json:"tolerations,omitempty"`
	Affinity     map[string]any    `json:"affinity,omitempty"`
}

// Read returns the objects of a file, in YAML or JSON.
func Read(from io.Reader) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(from, 4096)
	var found []*unstructured.Unstructured
	for {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		case len(raw.Raw) == 0 || string(raw.Raw) == "null":
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		found = append(found, object)
	}
}

// Annotate makes each pod, and each template of pods, that names a PodGroup with a minCount the member of a Hard gang of
// which so many have to run: its minimum. A PodGroup is an application of its own unless the pods say which theirs is.
// It returns an error where a pod names a PodGroup that is not among the objects, and then the objects are of no use.
func Annotate(objects []*unstructured.Unstructured) error {
	minimums := map[string]int64{}
	for _, each := range objects {
		if each.GetKind() == "PodGroup" && schema.FromAPIVersionAndKind(each.GetAPIVersion(), "").Group == apiGroup {
			minimum, _, err := unstructured.NestedInt64(each.Object, "spec", "schedulingPolicy", "gang", "minCount")
			if err != nil {
				return fmt.Errorf("PodGroup %s: %w", each.GetName(), err)
			}
			minimums[each.GetNamespace()+"/"+each.GetName()] = minimum
		}
	}
	for _, each := range objects {
		pod := each.Object
		if template, found, _ := unstructured.NestedMap(pod, "spec", "template"); found {
			pod = template
		}
		group, _, _ := unstructured.NestedString(pod, "spec", "schedulingGroup", "podGroupName")
		if group == "" {
			continue
		}
		minimum, known := minimums[each.GetNamespace()+"/"+group]
		if !known {
			return fmt.Errorf("%s %s: there is no PodGroup %q in its namespace", each.GetKind(), each.GetName(), group)
		}
		if err := annotate(pod, group, minimum); err != nil {
			return fmt.Errorf("%s %s: %w", each.GetKind(), each.GetName(), err)
		}
		if each.GetKind() != "Pod" {
			_ = unstructured.SetNestedMap(each.Object, pod, "spec", "template")
		}
	}
	return nil
}

func annotate(pod map[string]any, group string, minimum int64) error {
	labels, _, _ := unstructured.NestedStringMap(pod, "metadata", "labels")
	marks := map[string]string{idLabel: group}
	maps.Copy(marks, labels)
	if err := unstructured.SetNestedStringMap(pod, marks, "metadata", "labels"); err != nil || minimum == 0 {
		return err
	}
	spec, _ := pod["spec"].(map[string]any)
	requests, err := addRequests(spec)
	if err != nil {
		return err
	}
	made := taskGroup{Name: group, MinMember: minimum, MinResource: requests}
	made.NodeSelector, _ = spec["nodeSelector"].(map[string]any)
	made.Tolerations, _ = spec["tolerations"].([]any)
	made.Affinity, _ = spec["affinity"].(map[string]any)
	text, err := json.Marshal([]taskGroup{made})
	if err != nil {
		return err
	}
	annotations, _, _ := unstructured.NestedStringMap(pod, "metadata", "annotations")
	said := map[string]string{groupAnnotation: group, listAnnotation: string(text), styleAnnotation: "gangSchedulingStyle=Hard"}
	maps.Copy(said, annotations)
	return unstructured.SetNestedStringMap(pod, said, "metadata", "annotations")
}

// addRequests returns what the containers of a pod request together.
func addRequests(spec map[string]any) (map[string]string, error) {
	sums := map[string]resource.Quantity{}
	containers, _ := spec["containers"].([]any)
	for _, each := range containers {
		container, _ := each.(map[string]any)
		requests, _, err := unstructured.NestedMap(container, "resources", "requests")
		if err != nil {
			return nil, err
		}
		for name, amount := range requests {
			read, err := resource.ParseQuantity(fmt.Sprint(amount))
			if err != nil {
				return nil, fmt.Errorf("request of %s: %w", name, err)
			}
			sum := sums[name]
			sum.Add(read)
			sums[name] = sum
		}
	}
	found := map[string]string{}
	for name, sum := range sums {
		found[name] = sum.String()
	}
	return found, nil
}
