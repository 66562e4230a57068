package kornel

import (
	"maps"
	"slices"
	"testing"
)

func TestWantsAreWrittenAsTags(t *testing.T) {
	whole := Ask{Key: "k", Tags: map[string]string{"own": "x"}, Devices: &Devices{Count: 2, Linked: true, Types: []string{"A", "B"}}}
	want := map[string]string{"own": "x", TagGPUCount: "2", TagGPULink: "same", TagGPUType: "A,B"}
	if got := whole.Allocation().GetAllocationTags(); !maps.Equal(got, want) {
		t.Fatalf("tags are %v, want %v", got, want)
	}
	part := Ask{Key: "k", Devices: &Devices{Fraction: 0.25}}
	if got := part.Allocation().GetAllocationTags()[TagGPUFraction]; got != "0.250" {
		t.Fatalf("fraction is %q", got)
	}
	memory := Ask{Key: "k", Devices: &Devices{Memory: "16Gi"}}
	if got := memory.Allocation().GetAllocationTags()[TagGPUMemory]; got != "16Gi" {
		t.Fatalf("memory is %q", got)
	}
}

func TestDevicesAreWrittenAsAnAttribute(t *testing.T) {
	devices := []Device{{ID: "0", Type: "A100", Memory: 1 << 30, Link: "x"}, {ID: "1"}}
	want := `[{"id":"0","type":"A100","memory":1073741824,"link":"x"},{"id":"1"}]`
	if got := DevicesAttribute(devices); got != want {
		t.Fatalf("attribute is %s, want %s", got, want)
	}
	if got := DevicesAttribute(nil); got != "" {
		t.Fatalf("attribute of no devices is %q", got)
	}
}

func TestDevicesOfAnAllocation(t *testing.T) {
	ask := Ask{Key: "k", Tags: map[string]string{TagGPUDevices: "0,3"}}
	if got := DevicesOf(ask.Allocation()); !slices.Equal(got, []string{"0", "3"}) {
		t.Fatalf("devices are %v", got)
	}
	if got := DevicesOf(Ask{Key: "k"}.Allocation()); got != nil {
		t.Fatalf("devices are %v", got)
	}
}
