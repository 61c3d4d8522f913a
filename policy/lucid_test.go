package policy

import (
	"strings"
	"testing"
)

// Lucid's test vectors (ASPLOS'23): packing with a job of two GPUs of 24 GB that uses 10 GB and has
// score 1 and priority 100.
func TestPartner(t *testing.T) {
	const gb = 1024
	r := sharer{gpus: 2, memory: 10 * gb, score: 1, priority: 100, device: 24 * gb}
	for _, c := range []struct {
		what string
		j    sharer
		want bool
	}{
		{"c1", sharer{gpus: 2, memory: 8 * gb, score: 1, priority: 150}, true},
		{"c2: it needs its GPUs for itself", sharer{gpus: 2, memory: 8 * gb, score: 2, priority: 150}, false},
		{"c3: another size", sharer{gpus: 1, memory: 8 * gb, score: 1, priority: 150}, false},
		{"c4: far behind in the order", sharer{gpus: 2, memory: 8 * gb, score: 1, priority: 201}, false},
		{"c5: memory", sharer{gpus: 2, memory: 14 * gb, score: 1, priority: 150}, false},
		{"twice as far is near enough", sharer{gpus: 2, memory: 8 * gb, score: 1, priority: 200}, true},
		{"another queue", sharer{gpus: 2, memory: 8 * gb, score: 1, priority: 150, queue: 3}, false},
		{"one that hardly notices", sharer{gpus: 2, memory: 8 * gb, priority: 150}, true},
	} {
		if got := r.suits(&c.j); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	jumbo := sharer{gpus: 1, score: 2, priority: 1, device: gb}
	if !jumbo.suits(&sharer{gpus: 1}) || jumbo.suits(&sharer{gpus: 1, score: 1}) {
		t.Error("a job that needs its GPUs goes with one that hardly notices, and with no other")
	}
}

func TestGrowKnob(t *testing.T) {
	for text, good := range map[string]bool{"profile=new,grow=more": true, "profile=new,grow=more/most": true,
		"grow=more": false, "profile=new,grow=new": false,
		"profile=new,grow=more/more": false, "profile=new,grow=more/": false, "profile=new,grow=a b": false} {
		if _, err := New("lucid:" + text); (err == nil) != good ||
			err != nil && !strings.Contains(err.Error(), "grow=") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
