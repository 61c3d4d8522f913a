//go:build linux

package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// How far it comes with an idle job depends on how long it is idle, and on its tier.
func TestIdleStages(t *testing.T) {
	all := &IdleRules{Below: 5, Warn: 30 * time.Minute, Demote: time.Hour, Stop: 2 * time.Hour}
	again := *all
	again.Warn, again.Requeue = 0, true
	since := time.Date(2030, 1, 2, 3, 4, 5, 0, time.Local)
	for _, c := range []struct {
		rules *IdleRules
		tier  cluster.Tier
		idle  time.Duration
		stage string
		text  string
	}{
		{all, cluster.Standard, 29 * time.Minute, "", ""},
		{all, cluster.Standard, 30 * time.Minute, show.IdleWarned,
			"idle since 03:04:05: its GPUs compute less than 5 %; after 1h of that it counts as best-effort; after 2h it is stopped"},
		{all, cluster.Standard, time.Hour, show.IdleDemoted,
			"it counts as best-effort until it computes again; after 2h it is stopped"},
		{all, cluster.Standard, 3 * time.Hour, show.IdleStopped,
			"stopped as idle: its GPUs computed less than 5 % for 2h"},
		{all, cluster.BestEffort, 90 * time.Minute, show.IdleWarned, "less than 5 %; after 2h it is stopped"},
		{&again, cluster.Standard, 30 * time.Minute, "", ""},
		{&again, cluster.Critical, 90 * time.Minute, "", ""},
		{&again, cluster.Standard, 2 * time.Hour, show.IdleStopped, "stopped to wait again as idle"},
	} {
		if got := c.rules.Stage(c.idle, c.tier); got != c.stage {
			t.Errorf("%v, %v idle: %q, not %q", c.tier, c.idle, got, c.stage)
		}
		if c.stage != "" && !strings.Contains(c.rules.Text(c.stage, since, c.tier), c.text) {
			t.Errorf("%s", c.rules.Text(c.stage, since, c.tier))
		}
	}
}
