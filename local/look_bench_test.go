//go:build linux

package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// BenchmarkLook1000: what a look ahead takes for 1,000 jobs that wait, whose run times are those of earlier
// runs, on a machine to which as many were submitted the day before: what muster why takes when no look that
// holds is there.
func BenchmarkLook1000(b *testing.B) {
	for _, policy := range []string{"fifo", "multifactor", "las"} {
		b.Run(policy, func(b *testing.B) {
			m := alive(b, func(o *Options) { o.Rules.Policy = policy })
			u := self(b)
			now := m.clock.Now()
			m.mu.Lock()
			for i := range 1000 {
				j := &cluster.Job{User: u.Name, Name: fmt.Sprint("train", i%10),
					Submit: now.Add(time.Duration(i-1000) * 80 * time.Second), Tier: cluster.Standard,
					Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
				m.known.Recent.Add(j)
				m.known.Runs.Add(j, time.Duration(1+i*i%97)*time.Minute)
			}
			m.mu.Unlock()
			s := func(i int) *ask.Submission {
				return &ask.Submission{Command: []string{"sleep", "1000"}, Dir: "/", Output: "/dev/null", GPUs: 1,
					Name: fmt.Sprint("train", i%10)}
			}
			for i := range 1002 {
				if _, err := m.Submit(b.Context(), u, s(i), ""); err != nil {
					b.Fatal(err)
				}
			}
			looks := 0
			for b.Loop() {
				f := m.makeForecast()
				if looks = len(f.Seen); looks == 0 || len(f.Waiting) < 900 {
					b.Fatalf("%d looks for %d jobs", looks, len(f.Waiting))
				}
			}
			b.ReportMetric(float64(looks), "looks")
		})
	}
}
