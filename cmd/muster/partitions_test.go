package main

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

// Each partition has a line, with its limits; where there are none, that is said.
func TestPrintPartitions(t *testing.T) {
	hour := api.Duration(time.Hour)
	for _, c := range []struct {
		list []api.Partition
		want []string
	}{
		{nil, []string{"no partitions"}},
		{[]api.Partition{{Name: "batch", Default: true, Nodes: []string{"n1", "n2"}, MaxTime: 8 * hour,
			DefaultTime: hour},
			{Name: "urgent", Nodes: []string{"n1"}, PriorityTier: 10}},
			[]string{"PARTITION", "batch*", "8h", "1h", "n1,n2", "urgent", "10"}},
	} {
		var b strings.Builder
		if err := printPartitions(&b, c.list); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in\n%s", want, b.String())
			}
		}
	}
}
