package kube

import (
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/look"
)

// Free GPUs and what of them is of use are metrics by the names that muster serve has.
func TestFreeMetrics(t *testing.T) {
	m := look.NewMetrics()
	value := func(name string) float64 {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(w.Body.String())
		if found == nil {
			t.Fatalf("there is no %s", name)
		}
		v, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	d, now := still(t, 1)
	d.opt.Observe = m
	d.come(t, now, controlplane.Pod("four", 4, nil))
	if free, usable := value("muster_free_gpus"), value("muster_usable_gpus"); free != 4 || usable != 4 {
		t.Errorf("%g GPUs are free, %g usable; it is 4 for jobs that ask for 4", free, usable)
	}
	d.come(t, now, controlplane.Pod("eight", 8, nil))
	if free, usable := value("muster_free_gpus"), value("muster_usable_gpus"); free != 4 || usable != 2 {
		t.Errorf("%g GPUs are free, %g usable; half of those that came can use all 4", free, usable)
	}
}
