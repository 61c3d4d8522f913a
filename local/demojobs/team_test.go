package demojobs

import (
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The same jobs come each time, in queues that there are, and each fits the machine.
func TestTeam(t *testing.T) {
	for _, gpus := range []int{1, 8} {
		queues := map[string]bool{}
		sum := cluster.Milli(0)
		for _, q := range Queues(gpus) {
			queues[q.Name] = true
			sum += q.Guarantee
		}
		if sum > int64(gpus)*cluster.Whole {
			t.Errorf("%d GPUs: %d are guaranteed", gpus, sum)
		}
		a, b := NewTeam(gpus, "/"), NewTeam(gpus, "/")
		for range 100 {
			s := a.Next()
			if !reflect.DeepEqual(s, b.Next()) {
				t.Fatal("another job comes")
			}
			if !queues[s.Queue] || s.GPUs < 1 || s.GPUs > gpus || s.Limit <= s.Estimate {
				t.Errorf("%+v", s)
			}
		}
	}
}
