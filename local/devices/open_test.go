//go:build linux

package devices

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/show"
)

// Before Volta MPS has no limits for its clients: it is not taken unless the configuration
// says so, and then it is said what that means.
func TestMPSBeforeVolta(t *testing.T) {
	for _, c := range []struct {
		model, shares string
		want          cluster.Sharing
		notes         int
	}{{"P100-16GB", "auto", cluster.TimeSlicing, 0}, {"K80-12GB", "auto", cluster.TimeSlicing, 0},
		{"M40-24GB", "mps", cluster.MPS, 1},
		{"V100-16GB", "auto", cluster.MPS, 0}, {"V100-16GB", "mps", cluster.MPS, 0},
		{"H100-80GB", "time-slicing", cluster.TimeSlicing, 0}} {
		d := &Found{GPUs: []show.GPU{{}}, Spec: cluster.Spec{Nodes: []cluster.Node{{Model: c.model, GPUs: 1}}}}
		conf := config.Sharing{Shares: c.shares, MIG: "static", Program: "sh", OverMemory: "warn"}
		if err := d.Share(&conf, t.TempDir()); err != nil || d.Spec.Sharing != c.want || len(d.Notes) != c.notes {
			t.Errorf("%s, shares: %s: %v, notes %q, %v; want %v", c.model, c.shares, d.Spec.Sharing, d.Notes, err,
				c.want)
		}
	}
}
