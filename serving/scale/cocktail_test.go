package scale

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// voting is a service with variants of accuracies and costs, each of which answers 100 requests a second.
func voting(b service.Budget, variants ...[2]float64) *View {
	s := &service.Service{Goal: service.Goal{Latency: 100 * time.Millisecond, Percentile: 99},
		Replicas: service.Replicas{Max: 20}, Budget: b}
	for i, v := range variants {
		s.Variants = append(s.Variants, service.Variant{Name: fmt.Sprint(i), Accuracy: v[0], Cost: v[1],
			Request: cluster.Request{GPUs: 1},
			Profile: service.Profile{{Share: cluster.Whole, Batch: 1, Latency: 10 * time.Millisecond}}})
	}
	n := len(variants)
	return &View{Service: s, Period: 15 * time.Second, Ready: make([]int, n), Coming: make([]int, n)}
}

// TestVote: three independent votes of 0.7 are right in 0.7^3 + 3 x 0.7^2 x 0.3; one that outweighs the others decides
// alone; where all err together, the vote is as good as the variants.
func TestVote(t *testing.T) {
	for _, c := range []struct {
		together   float64
		accuracies []float64
		want       float64
	}{
		{0, []float64{0.7, 0.7, 0.7}, 0.784}, {0, []float64{0.7, 0.7, 0.7, 0.7, 0.7}, 0.83692},
		{0, []float64{0.7, 0.7}, 0.7}, {0, []float64{0.9, 0.6, 0.6}, 0.9}, {0, []float64{0.8, 0.75, 0.7}, 0.845},
		{1, []float64{0.7, 0.7, 0.7}, 0.7}, {1, []float64{0.8, 0.75, 0.7}, 0.75}, {1, []float64{0.9, 0.6, 0.6}, 0.9},
		{0.5, []float64{0.7, 0.7, 0.7}, 0.742},
	} {
		var list [][2]float64
		for _, a := range c.accuracies {
			list = append(list, [2]float64{a, 1})
		}
		v := voting(service.Budget{}, list...)
		p := policy(t, fmt.Sprintf("cocktail:together=%g", c.together)).(Ensembler)
		if got := p.Accuracy(v.Service, 1<<len(list)-1); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v, %g together: %g, want %g", c.accuracies, c.together, got, c.want)
		}
	}
}

// TestCocktail: three small ones replace a large one as long as they are accurate enough and cheaper; a budget that is
// too small gives way where it may.
func TestCocktail(t *testing.T) {
	small, large := [2]float64{0.7, 1}, [2]float64{0.8, 5}
	for _, c := range []struct {
		b    service.Budget
		rate float64
		want string
	}{
		{service.Budget{Accuracy: 0.7}, 80, "[1 0 0 0]"}, // a vote of one
		{service.Budget{Accuracy: 0.75}, 80, "[1 1 1 0]"},
		{service.Budget{Accuracy: 0.75}, 170, "[2 2 2 0]"},
		{service.Budget{Accuracy: 0.79}, 80, "[0 0 0 1]"},
		{service.Budget{Accuracy: 0.75, PerHour: 3}, 170, "[1 1 1 0]"},
		{service.Budget{Accuracy: 0.75, PerHour: 3, Gives: service.Cost}, 170, "[2 2 2 0]"},
		{service.Budget{Accuracy: 0.75, PerHour: 3, Gives: service.Accuracy}, 170, "[2 0 0 0]"},
	} {
		v := voting(c.b, small, small, small, large)
		v.Arrived = int64(15 * c.rate)
		p := policy(t, "cocktail:together=0")
		if got := fmt.Sprint(p.Decide(v)); got != c.want {
			t.Errorf("%+v at %g/s: %s, want %s", c.b, c.rate, got, c.want)
		}
	}
}

// TestCocktailChecks: what cannot vote is refused, and so is a floor that no ensemble reaches, and every vote for
// requests that are real.
func TestCocktailChecks(t *testing.T) {
	for _, c := range []struct {
		b    service.Budget
		list [][2]float64
		want string
	}{
		{service.Budget{Accuracy: 0.78}, [][2]float64{{0.7, 1}, {0.7, 1}, {0.7, 1}}, ""},
		{service.Budget{Accuracy: 0.79}, [][2]float64{{0.7, 1}, {0.7, 1}, {0.7, 1}}, "the best has 0.7840"},
		{service.Budget{}, [][2]float64{{0.7, 1}, {0, 1}}, "variant 1 states no accuracy"},
		{service.Budget{}, make([][2]float64, 11), "at most 10 variants vote"},
	} {
		err := Check(policy(t, "cocktail:together=0"), voting(c.b, c.list...).Service)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, %v: %v, want %s", c.b, c.list, err, c.want)
		}
	}
	alone := voting(service.Budget{Accuracy: 0.78}, [2]float64{0.7, 1}).Service
	if err := Check(policy(t, "muster"), alone); err == nil {
		t.Error("a floor that no variant reaches passes without a vote")
	}
	if _, err := Elsewhere("cocktail"); err == nil || !strings.Contains(err.Error(), "Muster's gateway") {
		t.Errorf("for real requests: %v", err)
	}
}
