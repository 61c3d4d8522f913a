package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
)

// servicesTogether are services whose replicas may have parts of GPUs, with their requests.
type servicesTogether struct {
	services []service.Service
	arrivals []requests.Arrivals
}

// parvaTogether is one of ParvaGPU's sets of services, whose rates rise and fall as Azure's recorded conversations did,
// minute by minute, those of each service some minutes later; in the mean they are as ParvaGPU states.
func parvaTogether(traces string, number, minutes int) (t servicesTogether, err error) {
	set, err := ReadParva(filepath.Join(traces, "parvagpu-mig"), number)
	if err != nil {
		return t, err
	}
	file, err := requests.Open(azure(traces), requests.Options{}, 0)
	if err != nil {
		return t, err
	}
	defer file.Close()
	const recorded = 58 // whole minutes
	var came [recorded]float64
	all := 0.0
	var r requests.Request
	for err = file.Next(&r); err == nil; err = file.Next(&r) {
		if m := int(time.Duration(r.At) / time.Minute); m < recorded {
			came[m]++
			all++
		}
	}
	if !errors.Is(err, io.EOF) {
		return t, err
	}
	for i := range set {
		s := &set[i]
		v := service.Variant{Name: s.Name, Startup: 20 * time.Second, Request: cluster.Request{GPUs: 1},
			Profile: shareProfile(s)}
		spec := service.Service{Name: s.Name, Tier: cluster.Critical,
			Goal:     service.Goal{Latency: s.Latency, Percentile: 99},
			Replicas: service.Replicas{Min: 1, Max: sharingGPUs}}
		if err := v.Choose(&spec); err != nil {
			return t, fmt.Errorf("%s: %w", s.Name, err)
		}
		spec.Variants = []service.Variant{v}
		a := requests.Arrivals{CV: 1, For: time.Duration(minutes) * time.Minute, Seed: uint64(i + 1)}
		for m := range minutes {
			rate := s.Rate * came[(m+i*recorded/len(set))%recorded] * recorded / all
			a.Steps = append(a.Steps, requests.Step{At: time.Duration(m) * time.Minute, Rate: rate})
		}
		a.Rate = a.Steps[0].Rate
		a.Steps = a.Steps[1:]
		t.services, t.arrivals = append(t.services, spec), append(t.arrivals, a)
	}
	return t, nil
}

// togetherOf is what became of services together.
type togetherOf struct {
	inTime   float64 // part of the requests of the service that has the fewest in time
	kept     int     // services that kept their goal
	gpuHours float64
	started  int
}

// play plays services under a policy; whole: each replica has a whole GPU.
func (t *servicesTogether) play(ctx context.Context, scaling string, whole bool) (got togetherOf, err error) {
	services := make([]service.Service, len(t.services))
	streams := make([]requests.Stream, len(services))
	for i, s := range t.services {
		if whole {
			v := s.Variants[0]
			v.Auto, v.Request.Share = false, 0
			s.Variants = []service.Variant{v}
		}
		services[i] = s
		streams[i] = requests.Draw(&t.arrivals[i], int32(i))
	}
	list, err := serve(ctx, services, scaling, requests.Merge(streams...), "A100-80GB")
	got.inTime = math.Inf(1)
	for i := range list {
		s := &list[i]
		got.inTime = min(got.inTime, s.Attainment())
		if 100*s.Attainment() >= services[i].Goal.Percentile {
			got.kept++
		}
		got.gpuHours += s.GPUHours
		got.started += s.Started
	}
	return got, err
}

// policiesTogether are the policies under which services are played together, and whether each replica has a whole GPU.
var policiesTogether = []struct {
	text  string
	whole bool
}{{"static:replicas=1", true}, {"static:replicas=1", false}, {"clipper:replicas=1", false},
	{"triton:replicas=1", false}, {"hpa", false}, {"mark", false}, {"infaas", false}, {"lyra", false},
	{"gpulet", false}, {"inss", false}, {"inss-rl", false}, {"nexus", false}, {"muster", true}, {"muster", false}}

// together plays sets of services under every policy that can choose for them.
func (t *Table) together(ctx context.Context, traces string, sets []int, minutes int) error {
	for _, set := range sets {
		services, err := parvaTogether(traces, set, minutes)
		if err != nil {
			return err
		}
		s := Section{Title: fmt.Sprintf("Services on the same GPUs: set %d of ParvaGPU", set),
			About: fmt.Sprintf("%d services on eight A100, measured by ParvaGPU on MIG instances, which are taken as parts of a GPU of that size; a replica starts in 20 s. Their rates rise and fall as Azure's conversations of 2023 did, minute by minute, each service's some minutes later, for %d minutes; in the mean they are as ParvaGPU states. 99 %% are promised within the latency that it states. Replicas have the part of a GPU with the most requests for its size (`gpus: auto`), which `muster` and the planners change, or a whole GPU each. No policy knows the rates before. What all of them miss are the 20 s until the first replica answers.",
				len(services.services), minutes),
			Head: []string{"policy", "in time, of the service with the fewest", "services that keep the goal",
				"GPU-hours", "started"}}
		for _, p := range policiesTogether {
			got, err := services.play(ctx, p.text, p.whole)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", s.Title, p.text, err)
			}
			name := "`" + p.text + "`"
			if p.whole {
				name += ", whole GPUs"
			}
			s.Cells = append(s.Cells, []string{name, fmt.Sprintf("%.2f %%", 100*got.inTime),
				fmt.Sprintf("%d of %d", got.kept, len(services.services)), fmt.Sprintf("%.2f", got.gpuHours),
				strconv.Itoa(got.started)})
		}
		t.Sections = append(t.Sections, s)
	}
	return nil
}
