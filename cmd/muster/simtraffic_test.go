package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/report"
)

// --traffic all compares every policy for traffic on a network, of which the examples are three; jobs lose less to each
// other under some of them.
func TestSimTraffic(t *testing.T) {
	demo := []string{"sim", "--demo", "--queues", "none", "--policies", "fifo"}
	var v struct{ Runs []report.Summary }
	out := ok(t, append(demo, "--cluster", "../../examples/network/racks.yaml", "--traffic", "all", "--json", "-")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	lost := map[string]float64{}
	for _, r := range v.Runs {
		lost[r.Traffic] = r.ContendedHours
		if len(r.Links) == 0 || r.Links[0].Load <= 0 {
			t.Errorf("%s: no link carries anything: %+v", r.Traffic, r.Links)
		}
	}
	for _, name := range traffic.Names() {
		if _, has := lost[name]; !has {
			t.Errorf("%s was not compared: %v", name, lost)
		}
	}
	if lost["none"] <= 0 || lost["muster"] > lost["none"]/2 {
		t.Errorf("GPU-hours lost to others: %v; muster should give back half of them", lost)
	}
	for _, name := range []string{"clos.yaml", "large.yaml"} {
		text := ok(t, append(demo, "--cluster", filepath.Join("../../examples/network", name),
			"--traffic", "none,ecmp")...)
		for _, want := range []string{"traffic ecmp", "busiest links"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
	for args, want := range map[string]string{
		"--traffic all": "--traffic: the cluster file describes no network (docs/reference/network.md)",
		"--cluster ../../examples/network/clos.yaml --traffic best": `--traffic: unknown traffic policy "best" (valid: none, ecmp,`,
	} {
		_, stderr, err := muster(t, t.Context(), append(demo, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(stderr+err.Error(), want) {
			t.Errorf("%s: %v %s, want %s", args, err, stderr, want)
		}
	}
}
