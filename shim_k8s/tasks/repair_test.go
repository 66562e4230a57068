package tasks

import (
	"testing"
	"time"
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
