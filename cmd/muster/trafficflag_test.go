package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// A job says on the command line what it transmits, and between which hosts; what is wrong is named by its flag.
func TestTrafficFlag(t *testing.T) {
	f := jobFlags{gpus: "1", traffic: "{pattern: ring, bytes: 102MB, compute: 150ms, overlap: 0.5}",
		trafficHosts: "node[1-2]"}
	s, err := f.submission(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := s.Traffic
	if got == nil || got.Pattern != cluster.Ring.String() || got.Bytes != 102_000_000 || got.Overlap != .5 ||
		got.Compute != ask.Duration(150*time.Millisecond) || !slices.Equal(got.Hosts, []string{"node1", "node2"}) {
		t.Errorf("%+v", got)
	}
	file := &ask.Submission{Traffic: &ask.Traffic{Pattern: "tree", Hosts: []string{"node9"}}}
	line := &ask.Submission{Traffic: &ask.Traffic{Pattern: "ring"}}
	overlays(file, line)["traffic"]()
	if beside := file.Traffic; beside.Pattern != "ring" || !slices.Equal(beside.Hosts, []string{"node9"}) {
		t.Errorf("beside a file: %+v", beside)
	}
	for _, c := range []struct{ traffic, hosts, want string }{
		{"ring", "", "--traffic: want such as {pattern"}, {"{pattern: rign}", "", "did you mean \"ring\""},
		{"", "node1", "--traffic-hosts: it says between which hosts"},
		{"{pattern: ring, bytes: 1MB}", "node[1", "--traffic-hosts: "},
	} {
		f := jobFlags{gpus: "1", traffic: c.traffic, trafficHosts: c.hosts}
		if _, err := f.submission(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %s", c.traffic, c.hosts, err, c.want)
		}
	}
}
