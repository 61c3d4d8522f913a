package control

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/serving/tally"
)

// TestMemory: under hpa:metric=kv replicas are asked how full their memory is, and that decides how many there are;
// where they do not say it, people are told so.
func TestMemory(t *testing.T) {
	w := newWorld(t, 4)
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "chat", Tally: tally.Tally{}}}}
	c := w.controller()
	w.apply(c, `
name: chat
ttft: 1s
replicas: {min: 1, max: 4}
scaling: "hpa:metric=kv,window=10s"
variants:
  - name: a
    command: [serve]
    model: {params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, kv_heads: 8, head_dim: 128}
`)
	const blind = "no replica says how full its KV memory is"
	why := func() string {
		s, err := c.Service("chat")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(s.Why, "\n")
	}
	w.pass(c, 20*time.Second)
	if w.expect(c, "chat", "1 answers"); !strings.Contains(why(), blind) {
		t.Errorf("nothing is published: %s", why())
	}
	publish := func(text string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.metrics = text
	}
	publish("vllm:kv_cache_usage_perc{model_name=\"m\"} 0.95\n") // 1.2 of the target
	w.pass(c, 8*time.Second)
	if w.expect(c, "chat", "1 answers, 2 answers"); strings.Contains(why(), blind) {
		t.Errorf("it is published: %s", why())
	}
	publish("vllm:kv_cache_usage_perc{model_name=\"m\"} 0.2\n")
	w.pass(c, 40*time.Second)
	w.expect(c, "chat", "1 answers")
}
