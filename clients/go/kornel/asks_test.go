package kornel

import (
	"maps"
	"testing"
	"time"
)

func TestATopologyIsWrittenAsTags(t *testing.T) {
	ask := Ask{Key: "k", Tags: map[string]string{"own": "x"}, Topology: &Topology{Required: "rack", SliceSize: 4}}
	want := map[string]string{"own": "x", TagTopologyRequired: "rack", TagTopologySliceSize: "4"}
	if got := ask.Allocation().GetAllocationTags(); !maps.Equal(got, want) {
		t.Fatalf("tags are %v, want %v", got, want)
	}
}

func TestARequiredNodeIsWrittenAsATag(t *testing.T) {
	ask := Ask{Key: "k", RequiredNode: "node-7"}
	want := map[string]string{"yunikorn.apache.org/requiredNode": "node-7"}
	if got := ask.Allocation().GetAllocationTags(); !maps.Equal(got, want) {
		t.Fatalf("tags are %v, want %v", got, want)
	}
}

func TestDurationsAreSentInMilliseconds(t *testing.T) {
	for _, each := range []struct {
		wanted time.Duration
		sent   int64
	}{{0, 0}, {time.Nanosecond, 1}, {1500 * time.Millisecond, 1500}, {2 * time.Second, 2000}} {
		callbacks := Callbacks{Timeout: each.wanted}
		if got := callbacks.subscription("rm").GetTimeoutMs(); got != each.sent {
			t.Errorf("%s is sent as %d ms", each.wanted, got)
		}
	}
}
