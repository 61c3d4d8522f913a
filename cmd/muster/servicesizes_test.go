//go:build linux

package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServiceInstances: where MIG instances are made as needed, a replica has the one that its variant names, or with
// gpus: auto one as large as the rate needs: large until that is known, then a small one, which answers before the
// large one leaves.
func TestServiceInstances(t *testing.T) {
	t.Parallel()
	s := startServing(t, "2xA100-80GB", "sharing: {mig: dynamic}\n")
	apply := func(name, more, need, profile string) {
		s.applyChanged(name, more, profile, "{name: small,", "{name: "+name+", "+need+",")
	}
	on := func(name string) (devices string) {
		for _, r := range s.show(name).Replicas {
			devices += strings.Join(r.Devices, " ") + ";"
		}
		return devices
	}
	apply("named", "replicas: {min: 1, max: 1}\nscaling: static", "mig: 2g.20gb", "{batch: 1, latency: 5ms}")
	apply("sized", "replicas: {min: 1, max: 2}\nscaling: muster:window=3s", "gpus: auto",
		"{share: 0.1, batch: 1, latency: 200ms}, {share: 0.5, batch: 1, latency: 20ms}, {batch: 1, latency: 15ms}")
	s.answers("named", 1)
	if at := on("named"); !strings.Contains(at, "(2g.20gb)") {
		t.Errorf("a replica of 2g.20gb is on %s", at)
	}
	s.eventually("the other begins on half of a GPU", func() bool { return strings.Contains(on("sized"), "(4g.40gb)") })
	s.eventually("it answers", func() bool { return s.show("sized").Answers > 0 })
	var last time.Time
	s.eventually("it has the smallest instance", func() bool {
		if time.Since(last) > time.Second { // that many the smallest sustains
			last = time.Now()
			if status, text := s.ask("sized"); status != http.StatusOK {
				t.Errorf("a request meanwhile: %d %s", status, text)
			}
		}
		at := on("sized")
		return strings.Count(at, ";") == 1 && strings.Contains(at, "(1g.10gb)")
	})
}
