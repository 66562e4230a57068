package tasks

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestASuspectIsMendedWhenItIsFoundAgainAndThenLessAndLessOften(t *testing.T) {
	repairer := &Repairer{}
	start := time.Unix(0, 0)
	var mended []int
	for round := range 240 {
		if repairer.isDue("pod", start.Add(time.Duration(round)*lookInterval)) {
			mended = append(mended, round)
		}
	}
	if mended[0] != 1 {
		t.Fatalf("first mended in round %d", mended[0])
	}
	for n := 2; n < len(mended); n++ {
		before, now := mended[n-1]-mended[n-2], mended[n]-mended[n-1]
		if wanted := min(2*before, int(longestPause/lookInterval)); now != wanted {
			t.Fatalf("mended in rounds %v", mended)
		}
	}
}

func TestSuspectsAreKeptApart(t *testing.T) {
	repairer := &Repairer{}
	now := time.Unix(0, 0)
	repairer.isDue("a", now)
	if later := now.Add(lookInterval); !repairer.isDue("a", later) || repairer.isDue("b", later) {
		t.Fatal("the second one is due before it was found twice")
	}
}

func TestWhatIsKeptOfAPodSaysWhetherItWasGivenUp(t *testing.T) {
	gone := metav1.Now()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "pod", UID: "uid", Labels: map[string]string{"applicationId": "app"}, DeletionTimestamp: &gone,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: v1.PodSpec{
			SchedulerName: "yunikorn", NodeName: "node", SchedulingGates: []v1.PodSchedulingGate{{Name: "gate"}},
			Containers: []v1.Container{{Name: "main"}},
		},
		Status: v1.PodStatus{Phase: v1.PodFailed, Message: "long"},
	}
	found, err := keepOrigin(pod)
	if err != nil {
		t.Fatal(err)
	}
	wanted := pod.DeepCopy()
	wanted.ManagedFields, wanted.Spec.Containers, wanted.Status.Message = nil, nil, ""
	if !equality.Semantic.DeepEqual(found, wanted) {
		t.Fatalf("kept %v", found)
	}
}
