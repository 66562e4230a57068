package kornel

import (
	"maps"
	"testing"
)

func TestATopologyIsWrittenAsTags(t *testing.T) {
	ask := Ask{Key: "k", Tags: map[string]string{"own": "x"}, Topology: &Topology{Required: "rack", SliceSize: 4}}
	want := map[string]string{"own": "x", TagTopologyRequired: "rack", TagTopologySliceSize: "4"}
	if got := ask.Allocation().GetAllocationTags(); !maps.Equal(got, want) {
		t.Fatalf("tags are %v, want %v", got, want)
	}
}
