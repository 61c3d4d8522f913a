package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
)

// parted is a service whose batches of b take fixed + each*b ms on a GPU, and longer on parts of it in proportion, but
// for a quarter of them, which is no faster on more than half of a GPU. A replica starts in 20 s.
func parted(name string, each, fixed float64, goal time.Duration) service.Service {
	v := service.Variant{Name: name, Request: cluster.Request{GPUs: 1}, Startup: 20 * time.Second}
	for _, share := range []cluster.Milli{100, 200, 400, 500, 600, 800, 1000} {
		for _, b := range []int{1, 2, 4, 8, 16, 32} {
			x := float64(share) / 1000
			ms := (each*float64(b) + fixed) * (0.75/x + 0.25/min(1, 2*x))
			v.Profile = append(v.Profile, service.Point{Share: share, Batch: b,
				Latency: time.Duration(ms * float64(time.Millisecond))})
		}
	}
	return service.Service{Name: name, Tier: cluster.Critical, Goal: service.Goal{Latency: goal, Percentile: 99},
		Replicas: service.Replicas{Min: 1, Max: 8}, Variants: []service.Variant{v}}
}

// servedTogether is what became of services under a policy.
type servedTogether struct {
	inTime float64 // of the service with the fewest
	hours  float64 // GPU-hours of all
	shares int     // different ones that a service's replicas had, the most of a service
	missed int64
	begun  int   // replicas
	failed int64 // requests that replicas had begun
}

// serveTogether plays services with their loads on GPUs.
func serveTogether(t *testing.T, services []service.Service, loads []requests.Arrivals, scaling string,
	gpus int) servedTogether {
	t.Helper()
	policies, err := scale.Policies(services, slices.Repeat([]string{scaling}, len(services)))
	if err != nil {
		t.Fatal(err)
	}
	var streams []requests.Stream
	for i := range loads {
		loads[i].Seed = uint64(i + 1)
		streams = append(streams, requests.Draw(&loads[i], int32(i)))
	}
	sv := &Serving{Services: services, Scaling: policies, Stream: requests.Merge(streams...)}
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "A100-80GB", GPUs: gpus}}}
	out := Run(context.Background(), spec, nil,
		Setup{Policy: "multifactor", Placer: "best-fit", World: Options{Serving: sv}})
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	sum := servedTogether{inTime: 1}
	for k := range sv.Served {
		got := &sv.Served[k]
		sum.inTime = min(sum.inTime, got.Attainment())
		sum.hours += got.GPUHours
		sum.missed += got.Missed()
		sum.failed += got.Failed
		sum.begun += got.Started
		if all := got.Answered + got.Dropped + got.Tally.Refused + got.Failed; all != got.Arrived {
			t.Errorf("%s: %d of %d requests are accounted for", scaling, all, got.Arrived)
		}
		shares := map[cluster.Milli]bool{}
		for _, id := range sv.states[k].all {
			shares[cluster.Milli(out.Run.Jobs[id].Tasks[0].Request.Share)] = true
		}
		sum.shares = max(sum.shares, len(shares))
	}
	return sum
}

// TestServingTogether: services that a planner divides GPUs between keep their goals, but for the time until replicas
// answer at the beginning and after a step, on fewer GPUs than with one for each replica.
func TestServingTogether(t *testing.T) {
	services := []service.Service{parted("a", 0.5, 3, 60*time.Millisecond), parted("b", 1, 5, 100*time.Millisecond),
		parted("c", 2, 4, 120*time.Millisecond)}
	foreseen := func(stated bool) []service.Service {
		list := slices.Clone(services)
		for i := range list {
			if f := &list[i].Forecast; stated {
				f.Steps = [][]service.ExpectedStep{{{At: 0, Rate: 400}, {At: 600, Rate: 1000}, {At: 1200, Rate: 200}},
					{{At: 0, Rate: 200}, {At: 900, Rate: 100}, {At: 1500, Rate: 300}}, {{At: 0, Rate: 60}}}[i]
			}
		}
		return list
	}
	loads := func(changing bool, n int) (list []requests.Arrivals) {
		for _, rate := range []float64{400, 200, 60} {
			list = append(list, requests.Arrivals{Rate: rate, CV: 1, For: 40 * time.Minute})
		}
		if changing {
			list[0].Steps = []requests.Step{{At: 10 * time.Minute, Rate: 1000}, {At: 20 * time.Minute, Rate: 200}}
			list[1].Steps = []requests.Step{{At: 15 * time.Minute, Rate: 100}, {At: 25 * time.Minute, Rate: 300}}
		}
		return list[:n]
	}
	for _, c := range []struct {
		name     string
		changing bool
		services int
		gpus     int
		inTime   float64
		part     float64 // of the GPU-hours of one GPU for each service
		stated   bool    // the rates are in the services' forecasts
	}{
		{"three, steady", false, 3, 4, 0.965, 0.5, false}, {"three, changing", true, 3, 4, 0.93, 0.5, false},
		{"two on two GPUs, changing", true, 2, 2, 0.95, 0.6, false},
		{"three on two GPUs, changing", true, 3, 2, 0.93, 0.5, false},
		{"three, changing, foreseen", true, 3, 4, 0.985, 0.5, true},
	} {
		static := float64(c.services) * 40. / 60
		if shared.Soak(c.gpus > 2 && !c.stated || c.services < 3, false) {
			continue
		}
		for _, policy := range shared.Soak([]string{"muster", "gpulet", "inss", "nexus"},
			[]string{"static:replicas=1", "muster", "gpulet", "inss", "nexus"}) {
			if !strings.Contains("gpulet inss nexus", policy) && c.services > c.gpus {
				continue // one of them would never run
			}
			if c.stated && policy != "muster" && shared.Soak(policy != "inss", false) {
				continue // one of the planners is told what comes
			}
			got := serveTogether(t, foreseen(c.stated)[:c.services], loads(c.changing, c.services), policy, c.gpus)
			t.Logf("%-26s %-18s %.2f %% in time, %.2f GPU-hours, %d shares", c.name, policy, 100*got.inTime, got.hours,
				got.shares)
			if got.failed > 0 || got.inTime < c.inTime {
				t.Errorf("%s, %s: %.3f in time, %d requests failed", c.name, policy, got.inTime, got.failed)
			}
			if !strings.Contains("gpulet inss nexus", policy) {
				continue
			}
			if got.hours > c.part*static || c.changing && got.shares < 2 {
				t.Errorf("%s, %s: %.2f GPU-hours, a GPU each takes %.2f; %d different shares", c.name, policy, got.hours,
					static, got.shares)
			}
		}
	}
}

// TestSharesChange: when a rate falls, a replica with a smaller share takes over: no request is missed besides those
// until the first replica answered.
func TestSharesChange(t *testing.T) {
	services := []service.Service{parted("a", 0.5, 3, 60*time.Millisecond)}
	for _, policy := range []string{"gpulet", "inss", "nexus"} {
		before := serveTogether(t, services, []requests.Arrivals{{Rate: 500, CV: 1, For: 10 * time.Minute}}, policy, 2)
		after := serveTogether(t, services, []requests.Arrivals{{Rate: 500, CV: 1, For: 30 * time.Minute,
			Steps: []requests.Step{{At: 10 * time.Minute, Rate: 100}}}}, policy, 2)
		if more := after.missed - before.missed; more > 12 || after.failed > 0 || after.begun <= before.begun {
			t.Errorf("%s: %d more missed, %d failed, %d replicas, %d before", policy, more, after.failed, after.begun,
				before.begun)
		}
	}
}
