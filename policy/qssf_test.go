package policy

import (
	"strings"
	"testing"
	"time"
)

// Helios, SC'21, test: rolling 150s, model 250s, alpha 0.1, one GPU: 240 GPU-seconds.
func TestQuasiService(t *testing.T) {
	for _, c := range []struct {
		gpus, rolling, own, alpha, want int64
	}{
		{1, 150, 250, 100, 240}, {4, 433, 0, 100, 4 * 433}, {2, 150, 0, 1000, 300}, {2, 150, 250, 1000, 300},
		{2, 0, 250, 1000, 500}, {8, 0, 0, 500, 0},
	} {
		got := quasiService(c.gpus*1000, time.Duration(c.rolling)*time.Second, time.Duration(c.own)*time.Second,
			c.alpha)
		if got != c.want*gpuSecond {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for _, knob := range []string{"alpha=2", "alpha=-0.1", "alpha=nan", "strict=perhaps"} {
		if _, err := New("qssf:" + knob); err == nil || !strings.Contains(err.Error(), knob[:5]) {
			t.Errorf("%s: %v", knob, err)
		}
	}
}
