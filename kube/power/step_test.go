package power

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is next for a node, by how far it is and what happened meanwhile.
func TestNext(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	since := func(d time.Duration) time.Time { return at.Add(-d) }
	goes := func(d time.Duration) situation {
		return situation{State: Suspending, Since: since(d), Wait: 10 * time.Second}
	}
	back := func(after time.Duration, called time.Time) situation {
		return situation{State: Resuming, Since: since(after), Timeout: time.Hour, Called: called}
	}
	ready := func(n situation, whole, late bool) situation {
		n.Ready, n.Whole, n.Late = true, whole, late
		return n
	}
	late := back(0, at)
	late.Late = true
	for name, c := range map[string]struct {
		n    situation
		want step
	}{
		"on":                         {situation{State: On, Used: true}, stay},
		"not switched":               {situation{}, stay},
		"about to go off":            {goes(9 * time.Second), stay},
		"it goes off":                {goes(10 * time.Second), switchOff},
		"its program was called":     {situation{State: Suspending, Since: at, Wait: time.Hour, Cut: true}, isOff},
		"a job came":                 {situation{State: Suspending, Cut: true, Used: true}, resume},
		"of no rule any more":        {situation{State: Suspending, Stray: true}, resume},
		"off":                        {situation{State: Off, Cordoned: true}, stay},
		"off, and needed":            {situation{State: Off, Cordoned: true, Used: true}, resume},
		"off, and uncordoned":        {situation{State: Off}, resume},
		"off, of no rule any more":   {situation{State: Off, Cordoned: true, Stray: true}, resume},
		"waited for":                 {back(0, at), stay},
		"asked again":                {back(0, since(AskAgain)), switchOn},
		"back":                       {ready(back(0, at), true, false), isOn},
		"back, without its GPUs":     {ready(back(0, at), false, false), stay},
		"late":                       {back(2*time.Hour, at), turnLate},
		"late, and it has lost some": {ready(back(2*time.Hour, at), false, true), isOn},
		"late no more":               {late, turnLate},
	} {
		if got := c.n.next(at); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
}

// A node that is not back has at least what it had before it went off, and lacks what it does not say yet.
func TestSize(t *testing.T) {
	list := func(gpus, cpus string) v1.ResourceList {
		return v1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus), v1.ResourceCPU: resource.MustParse(cpus)}
	}
	node := func(l v1.ResourceList) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Capacity: l, Allocatable: l}}
	}
	text := sizeText(node(list("8", "96")))
	now := node(list("0", "128"))
	as, before := whole(now, Resuming, text)
	gpus, cpus := as.Status.Allocatable["nvidia.com/gpu"], as.Status.Capacity[v1.ResourceCPU]
	if gpus.Value() != 8 || cpus.Value() != 128 {
		t.Errorf("it has %v", as.Status)
	}
	isGPU := func(name v1.ResourceName) bool { return name == "nvidia.com/gpu" }
	if got := before.lacks(now.Status.Allocatable, isGPU); got != "nvidia.com/gpu: 0 of 8" {
		t.Errorf("it lacks %q", got)
	}
	if got := before.lacks(list("8", "1"), isGPU); got != "" {
		t.Errorf("it lacks %q", got)
	}
	for _, c := range [][2]string{{On, text}, {Off, ""}, {Off, "{"}} {
		if as, before := whole(now, c[0], c[1]); as != now || before.Allocatable != nil {
			t.Errorf("%q, %q: it has %v", c[0], c[1], as.Status)
		}
	}
}
