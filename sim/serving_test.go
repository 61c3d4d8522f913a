package sim

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/trace"
)

// vision is a service whose batches take 6 ms and a tenth for each request; a replica starts in 20 s.
func vision(lo, hi int) service.Service {
	v := service.Variant{Name: "v", Request: cluster.Request{GPUs: 1}, Startup: 20 * time.Second}
	for _, b := range []int{1, 8, 32} {
		v.Profile = append(v.Profile, service.Point{Share: cluster.Whole, Batch: b,
			Latency: 6*time.Millisecond + time.Duration(b)*time.Millisecond/10})
	}
	return service.Service{Name: "vision", Tier: cluster.Critical,
		Goal:     service.Goal{Latency: 50 * time.Millisecond, Percentile: 99},
		Replicas: service.Replicas{Min: lo, Max: hi}, Variants: []service.Variant{v}}
}

// serve plays requests beside jobs on a node of four GPUs, and on others.
func serve(t *testing.T, s service.Service, scaling string, a *requests.Arrivals, jobs []trace.Entry,
	more ...cluster.Node) (*Serving, Outcome) {
	t.Helper()
	p, err := scale.New(scaling)
	if err != nil {
		t.Fatal(err)
	}
	sv := &Serving{Services: []service.Service{s}, Scaling: []scale.Policy{p}, Stream: requests.Draw(a, 0)}
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4, CPU: 64000, RAM: 1 << 20}}}
	spec.Nodes = append(spec.Nodes, more...)
	out := Run(context.Background(), spec, jobs,
		Setup{Policy: "multifactor", Placer: "best-fit", World: Options{Serving: sv}})
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	return sv, out
}

// TestWarm: a replica that starts again where its weights still are answers sooner, and such starts are counted.
func TestWarm(t *testing.T) {
	s := vision(1, 4)
	load := &requests.Arrivals{Rate: 100, CV: 1, For: 20 * time.Minute}
	for k, rate := range []float64{9000, 100, 9000, 100} {
		load.Steps = append(load.Steps, requests.Step{At: time.Duration(k+1) * 4 * time.Minute, Rate: rate})
	}
	cold, _ := serve(t, s, "hpa", load, nil)
	s.Variants[0].Warm = 2 * time.Second
	warm, _ := serve(t, s, "hpa", load, nil)
	if c, w := &cold.Served[0], &warm.Served[0]; c.Warm != 0 || w.Warm < 2 || w.Warm >= w.Started ||
		w.InTime <= c.InTime {
		t.Errorf("%d of %d starts were warm and %d requests in time; cold: %d and %d", w.Warm, w.Started, w.InTime,
			c.Warm,
			c.InTime)
	}
}

// TestServing: a step in load is followed, nothing is lost, and at the end no replica is left.
func TestServing(t *testing.T) {
	load := &requests.Arrivals{Rate: 100, CV: 1, For: 10 * time.Minute,
		Steps: []requests.Step{{At: 5 * time.Minute, Rate: 9000}}}
	sv, out := serve(t, vision(1, 4), "hpa", load, nil)
	got := &sv.Served[0]
	if sum := got.Answered + got.Dropped + got.Tally.Refused + got.Failed; sum != got.Arrived || got.Failed != 0 {
		t.Errorf("%d of %d requests are accounted for: %+v", sum, got.Arrived, got.Tally)
	}
	if got.Peak < 3 || got.Peak > 4 || got.Started != got.Stopped || got.Attainment() < 0.9 {
		t.Errorf("%d replicas at most, %d started, %d stopped, %.3f in time", got.Peak, got.Started, got.Stopped,
			got.Attainment())
	}
	if held := float64(out.Run.Records[0].Held) / 3.6e9; got.GPUHours < held || got.GPUHours > 4*11./60 ||
		got.GPUHours != got.Cost {
		t.Errorf("%g GPU-hours, at a cost of %g; the first replica held %g", got.GPUHours, got.Cost, held)
	}
	for i := range out.Run.Records {
		if r := &out.Run.Records[i]; r.End == cluster.Never {
			t.Errorf("replica %d has no end: %+v", i, r)
		}
	}
	again, second := serve(t, vision(1, 4), "hpa", load, nil)
	if second.Hash != out.Hash || again.Served[0].InTime != got.InTime {
		t.Errorf("twice the same: hashes %x and %x, %d and %d in time", out.Hash, second.Hash, got.InTime,
			again.Served[0].InTime)
	}
}

// TestServingBesideTraining: a critical service takes its GPUs from best-effort jobs, which go on later.
func TestServingBesideTraining(t *testing.T) {
	var jobs []trace.Entry
	for i := range 4 {
		jobs = append(jobs, trace.Entry{Run: time.Hour,
			Job: cluster.Job{ID: cluster.JobID(i), User: "ann", Tier: cluster.BestEffort,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}, Estimate: time.Hour}})
	}
	_, alone := serve(t, vision(1, 1), "static", &requests.Arrivals{Rate: 1, CV: 1, For: time.Second}, jobs)
	load := &requests.Arrivals{Rate: 2000, CV: 1, For: 30 * time.Minute,
		Spikes: []requests.Spike{{At: 10 * time.Minute, For: 10 * time.Minute, Times: 6}}}
	sv, out := serve(t, vision(1, 4), "hpa", load, jobs)
	if got := &sv.Served[0]; got.Peak < 3 || got.Evicted != 0 || got.Attainment() < 0.85 {
		t.Errorf("the service: %d replicas at most, %d evicted, %.3f in time", got.Peak, got.Evicted, got.Attainment())
	}
	end := func(o *Outcome) (last cluster.Time) {
		for i := range 4 {
			last = max(last, o.Run.Records[i].End)
		}
		return last
	}
	if a, b := end(&alone), end(&out); b <= a || b == cluster.Never {
		t.Errorf("training ends at %v alone, at %v beside the service", a, b)
	}
}

// TestServingNoRoom: where there are no GPUs of the model on which a request costs least, others do the rest.
func TestServingNoRoom(t *testing.T) {
	s := vision(1, 6)
	slow, fast := s.Variants[0], s.Variants[0]
	slow.Name, slow.GPUTypes, slow.Cost = "slow", []string{"T4-16GB"}, 1
	slow.Profile = service.Profile{{Share: cluster.Whole, Batch: 1, Latency: 10 * time.Millisecond}}
	fast.Name, fast.GPUTypes, fast.Cost = "fast", []string{"A10-24GB"}, 1.5
	fast.Profile = service.Profile{{Share: cluster.Whole, Batch: 1, Latency: 5 * time.Millisecond}}
	s.Variants = []service.Variant{fast, slow}
	_, rate := slow.Profile.Sustained(cluster.Whole, s.MaxBatch(&slow), s.Goal.Latency)
	load := &requests.Arrivals{Rate: rate / 2, CV: 1, For: 30 * time.Minute,
		Steps: []requests.Step{{At: 5 * time.Minute, Rate: 4 * rate}}}
	other := cluster.Node{Name: "n2", Model: "A10-24GB", GPUs: 1, CPU: 64000, RAM: 1 << 20}
	sv, _ := serve(t, s, "muster", load, nil, other)
	got := &sv.Served[0]
	if got.Peak < 3 || got.Attainment() < 0.9 {
		t.Errorf("%d replicas at most, %.3f in time", got.Peak, got.Attainment())
	}
}

// TestServingMoves: a replica that is moved for a job goes on until another answers where it is moved to, so that no
// fewer requests are in time than where none moves.
func TestServingMoves(t *testing.T) {
	s := vision(1, 1)
	s.Tier = cluster.Standard
	job := func(id, gpus int, submit, run time.Duration) trace.Entry {
		return trace.Entry{Run: run, Job: cluster.Job{ID: cluster.JobID(id), User: "ann", Tier: cluster.Standard,
			Submit: cluster.Time(submit), NoRequeue: true, Estimate: run,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}}
	}
	jobs := []trace.Entry{job(0, 1, 0, 5*time.Minute), job(1, 1, 0, 20*time.Hour),
		job(2, 2, 10*time.Minute, time.Hour)}
	spec := &cluster.Spec{}
	for _, name := range []string{"n1", "n2"} {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: name, Model: "T4-16GB", GPUs: 2, CPU: 64000, RAM: 1 << 20})
	}
	play := func(jobs []trace.Entry) (*Served, Outcome) {
		p, err := scale.New("static:replicas=1")
		if err != nil {
			t.Fatal(err)
		}
		sv := &Serving{Services: []service.Service{s}, Scaling: []scale.Policy{p},
			Stream: requests.Draw(&requests.Arrivals{Rate: 100, CV: 1, For: 30 * time.Minute}, 0)}
		out := Run(context.Background(), spec, jobs, Setup{Policy: "fifo", Placer: "best-fit",
			Config: engine.Config{Defrag: &engine.Defrag{Auto: true}}, World: Options{Serving: sv}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		return &sv.Served[0], out
	}
	stays, _ := play(jobs[:2])
	got, out := play(jobs)
	if stays.Started != 1 || got.Started != 2 || got.Evicted != 0 || got.Failed != 0 || got.InTime < stays.InTime {
		t.Errorf("%d replicas started, %d evicted, requests failed %d, in time %d; %d where none moves", got.Started,
			got.Evicted, got.Failed, got.InTime, stays.InTime)
	}
	if at := out.Run.Records[2].FirstStart; at < cluster.Time(10*time.Minute) || at > cluster.Time(17*time.Minute) {
		t.Errorf("the job for which it moved started at %v", at)
	}
}

// TestServingFromZero: without requests nothing is held; the first waits for a start.
func TestServingFromZero(t *testing.T) {
	load := &requests.Arrivals{Rate: 0, CV: 1, For: 3 * time.Hour,
		Steps: []requests.Step{{At: time.Hour, Rate: 50}, {At: 2 * time.Hour, Rate: 0}}}
	sv, out := serve(t, vision(0, 2), "hpa:window=1m", load, nil)
	got := &sv.Served[0]
	if got.Started != 1 || got.GPUHours > 1.1 || got.Attainment() < 0.99 {
		t.Errorf("%d replicas started, %g GPU-hours, %.3f in time", got.Started, got.GPUHours, got.Attainment())
	}
	if at := out.Run.Records[0].Submit; at < cluster.Time(time.Hour) || at > cluster.Time(time.Hour+time.Minute) {
		t.Errorf("the first replica was asked for at %v", at)
	}
}

// TestServingEvicted: a replica that is preempted loses what it computes, and comes back.
func TestServingEvicted(t *testing.T) {
	s := vision(2, 2)
	s.Tier = cluster.BestEffort
	var jobs []trace.Entry
	for i := range 4 {
		jobs = append(jobs, trace.Entry{Run: 5 * time.Minute,
			Job: cluster.Job{ID: cluster.JobID(i), User: "ann", Tier: cluster.Critical,
				Submit: cluster.Time(10 * time.Minute),
				Tasks:  []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
	}
	sv, _ := serve(t, s, "static", &requests.Arrivals{Rate: 1000, CV: 1, For: 30 * time.Minute}, jobs)
	got := &sv.Served[0]
	if got.Evicted != 2 || got.Failed != 0 || got.Tally.Refused+got.Dropped < 100_000 || got.Started != 2 {
		t.Errorf("%d evicted, %d started, %d failed, %d refused", got.Evicted, got.Started, got.Failed,
			got.Tally.Refused)
	}
	if sum := got.Answered + got.Dropped + got.Tally.Refused + got.Failed; sum != got.Arrived {
		t.Errorf("%d of %d requests are accounted for", sum, got.Arrived)
	}
}

// TestServingVotes: three small variants that vote keep a floor of accuracy that each of them misses, at less cost than
// the large one.
func TestServingVotes(t *testing.T) {
	s := vision(1, 8)
	s.Budget.Accuracy = 0.76
	small := s.Variants[0]
	small.Accuracy, small.Cost = 0.75, 1
	large := small
	large.Accuracy, large.Cost = 0.78, 4
	s.Variants = []service.Variant{small, small, small, large}
	load := &requests.Arrivals{Rate: 500, CV: 1, For: 30 * time.Minute}
	spent := map[string]float64{}
	for _, policy := range []string{"cocktail", "infaas"} {
		sv, _ := serve(t, s, policy, load, nil)
		got := &sv.Served[0]
		if got.Attainment() < 0.97 || got.Accuracy < 0.76 || got.Failed != 0 {
			t.Errorf("%s: %.4f in time, an accuracy of %.4f", policy, got.Attainment(), got.Accuracy)
		}
		spent[policy] = got.Cost
	}
	if ours := spent["cocktail"]; ours > 0.8*spent["infaas"] {
		t.Errorf("votes cost %g, the large variant %g", ours, spent["infaas"])
	}
}

// TestServingLends: what a service does not need is lent to training as whole servers, and comes back in time for a
// rate that is expected: more training is done within the hour than beside a
// service that keeps all, and no more requests are late.
func TestServingLends(t *testing.T) {
	s := vision(0, 4)
	s.Variants[0].Request.GPUs, s.Lend.Within = 2, 30*time.Second
	s.Forecast.Steps = []service.ExpectedStep{{At: 0, Rate: 100}, {At: 1200, Rate: 9000}, {At: 1500, Rate: 100}}
	load := requests.Arrivals{Rate: 100, CV: 1, For: time.Hour,
		Steps: []requests.Step{{At: 20 * time.Minute, Rate: 9000}, {At: 25 * time.Minute, Rate: 100}}}
	spec := &cluster.Spec{}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: name, Model: "T4-16GB", GPUs: 4})
	}
	var jobs []trace.Entry
	for i := range 40 {
		jobs = append(jobs, trace.Entry{Run: 10 * time.Minute,
			Job: cluster.Job{ID: cluster.JobID(i), User: "ann", Tier: cluster.BestEffort,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 2}}}}})
	}
	done, late := map[string]int{}, map[string]float64{}
	for _, policy := range []string{"static", "lyra"} {
		p, err := scale.New(policy)
		if err != nil {
			t.Fatal(err)
		}
		one := load
		sv := &Serving{Services: []service.Service{s}, Scaling: []scale.Policy{p}, Stream: requests.Draw(&one, 0)}
		out := Run(context.Background(), spec, jobs,
			Setup{Policy: "multifactor", Placer: "best-fit", World: Options{Serving: sv}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		for i := range jobs {
			if out.Run.Records[i].End <= cluster.Time(time.Hour) {
				done[policy]++
			}
		}
		if l := sv.lenders(); len(l) != 1 || l[0].Servers != (policy == "lyra") || l[0].Replicas != 4 {
			t.Errorf("%s: %+v", policy, l)
		}
		got := &sv.Served[0]
		late[policy] = 1 - got.Attainment()
		if got.Evicted > 0 || policy == "lyra" && (got.Peak != 4 || got.Started%2 != 0) {
			t.Errorf("%s: %d replicas evicted, %d started, %d at most", policy, got.Evicted, got.Started, got.Peak)
		}
	}
	if done["lyra"] < done["static"]*5/4 || late["lyra"] > late["static"]+0.001 {
		t.Errorf("%d jobs are done, without loans %d; %g and %g of the requests late", done["lyra"], done["static"],
			late["lyra"], late["static"])
	}
}

// TestServingLendsToThoseThatLeave: what a service lends is for jobs that can be taken back: best-effort jobs have it
// and leave for the spike, a standard one has what is left besides, and another waits until the requests are over.
func TestServingLendsToThoseThatLeave(t *testing.T) {
	s := vision(1, 3)
	s.Lend.Within = 30 * time.Second
	load := &requests.Arrivals{Rate: 100, CV: 1, For: 20 * time.Minute,
		Spikes: []requests.Spike{{At: 10 * time.Minute, For: 5 * time.Minute, Times: 75}}}
	var jobs []trace.Entry
	for i, tier := range []cluster.Tier{cluster.BestEffort, cluster.BestEffort, cluster.Standard, cluster.Standard} {
		jobs = append(jobs, trace.Entry{Run: time.Hour, Job: cluster.Job{ID: cluster.JobID(i), User: "ann",
			Tier: tier, Submit: cluster.Time(time.Minute),
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
	}
	sv, out := serve(t, s, "hpa", load, jobs)
	began := func(i int) time.Duration { return time.Duration(out.Run.Records[i].FirstStart) }
	if began(0) != time.Minute || began(1) != time.Minute || began(2) != time.Minute {
		t.Errorf("the first started at %v, %v and %v", began(0), began(1), began(2))
	}
	if began(3) < 20*time.Minute || began(3) > 25*time.Minute {
		t.Errorf("the second standard job started at %v", began(3))
	}
	if got := &sv.Served[0]; got.Peak != 3 || got.Evicted > 0 || out.Run.Records[2].Preemptions > 0 {
		t.Errorf("%d replicas at most, %d evicted; the standard job left %d times", got.Peak, got.Evicted,
			out.Run.Records[2].Preemptions)
	}
}

// TestServingLendsWithin: a job that has longer to save than the service waits for its GPUs goes without having saved.
func TestServingLendsWithin(t *testing.T) {
	for within, lost := range map[time.Duration]bool{time.Minute: false, 30 * time.Second: true} {
		s := vision(1, 3)
		s.Lend.Within = within
		load := &requests.Arrivals{Rate: 100, CV: 1, For: 20 * time.Minute,
			Spikes: []requests.Spike{{At: 10 * time.Minute, For: 5 * time.Minute, Times: 75}}}
		trainer := cluster.Job{User: "ann", Tier: cluster.Standard, Submit: cluster.Time(time.Minute),
			Elastic: cluster.Elastic{Min: 2, Max: 3},
			Tasks:   []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}}}}
		trainer.Checkpoint.Cost = 45 * time.Second
		_, out := serve(t, s, "hpa", load, []trace.Entry{{Run: time.Hour, Job: trainer}})
		r := &out.Run.Records[0]
		if r.Preemptions == 0 || (r.Lost > 0) != lost {
			t.Errorf("within %v: %d preemptions, %d milli-GPU times ms lost", within, r.Preemptions, r.Lost)
		}
	}
}

// TestNeighbours: a replica is as slow as the table says beside what is on its GPU, from when that comes until
// it leaves.
func TestNeighbours(t *testing.T) {
	s := vision(1, 1)
	s.Variants[0].Request.Share, s.Variants[0].Name = 500, "vision"
	for i := range s.Variants[0].Profile {
		s.Variants[0].Profile[i].Share = 500
	}
	play := func(jobs []trace.Entry) *Serving {
		sv := &Serving{Services: []service.Service{s}, Stream: requests.Draw(&requests.Arrivals{Rate: 20, CV: 0,
			For: 20 * time.Minute}, 0)}
		var err error
		if sv.Scaling, err = scale.Policies(sv.Services, []string{"static:replicas=1"}); err != nil {
			t.Fatal(err)
		}
		spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 1, CPU: 64000, RAM: 1 << 20}}}
		out := Run(context.Background(), spec, jobs,
			Setup{Policy: "fifo", Placer: "best-fit", World: Options{Serving: sv,
				Model: &perf.Table{Pairs: map[perf.Pair]int64{{"vision", "train"}: 250_000}}}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		return sv
	}
	beside := cluster.Job{Submit: cluster.Time(5 * time.Minute), Model: "train",
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Share: 500}}}}
	alone := play([]trace.Entry{{Job: cluster.Job{Submit: 0, Tasks: beside.Tasks}, Run: time.Second}})
	got := play([]trace.Entry{{Job: beside, Run: 10 * time.Minute}})
	q := func(sv *Serving, part float64) time.Duration { return sv.Served[0].Latency.Quantile(part) }
	if a := q(alone, 0.9); q(got, 0.3) > a*65/64 || q(got, 0.75) < 39*a/10 || q(got, 0.75) > 42*a/10 {
		t.Errorf("alone %v; beside the other for half of the time %v and %v", a, q(got, 0.3), q(got, 0.75))
	}
}

// TestNeighboursPlanned: a policy counts with what its replicas' neighbours slow down, as on a machine.
func TestNeighboursPlanned(t *testing.T) {
	s := vision(1, 4)
	s.Variants[0].Request.Share, s.Variants[0].Name = 500, "vision"
	for i := range s.Variants[0].Profile {
		s.Variants[0].Profile[i].Share = 500
	}
	for keeps, want := range map[int64]bool{1_000_000: false, 300_000: true} {
		sv := &Serving{Services: []service.Service{s}, Stream: requests.Draw(&requests.Arrivals{Rate: 600, CV: 0,
			For: 20 * time.Minute}, 0)}
		var err error
		if sv.Scaling, err = scale.Policies(sv.Services, []string{"mark"}); err != nil {
			t.Fatal(err)
		}
		beside := trace.Entry{Job: cluster.Job{Submit: cluster.Time(5 * time.Minute), Model: "train",
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Share: 500}}}}, Run: 10 * time.Minute}
		spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4, CPU: 64000, RAM: 1 << 20}}}
		out := Run(context.Background(), spec, []trace.Entry{beside}, Setup{Policy: "fifo", Placer: "best-fit",
			World: Options{Serving: sv, Model: &perf.Table{Pairs: map[perf.Pair]int64{{"vision", "train"}: keeps}}}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		if got := sv.Served[0].Peak > 1; got != want {
			t.Errorf("beside a job that leaves %d ppm of its speed, up to %d replicas", keeps, sv.Served[0].Peak)
		}
	}
}

// TestServingCanary: the last variant answers its part of the requests, with the replicas that this takes, and what
// became of them is told apart.
func TestServingCanary(t *testing.T) {
	s := vision(2, 4)
	slow := s.Variants[0]
	slow.Name, slow.Profile = "new", nil
	for _, p := range s.Variants[0].Profile {
		slow.Profile = append(slow.Profile, service.Point{Share: p.Share, Batch: p.Batch, Latency: 2 * p.Latency})
	}
	s.Variants, s.Canary = append(s.Variants, slow), 0.1
	sv, _ := serve(t, s, "static:replicas=2", &requests.Arrivals{Rate: 500, CV: 0, For: 20 * time.Minute}, nil)
	all, canary := &sv.Served[0], sv.Served[0].Canary
	if part := float64(canary.Arrived) / float64(all.Arrived-int64(500*s.Variants[0].Startup.Seconds())); math.Abs(
		part-0.1) > 1e-3 || canary.Started != 1 || all.Started != 3 {
		t.Errorf("the canary had %.4f of the requests, and %d of %d replicas", part, canary.Started, all.Started)
	}
	if all.Failed > 0 || all.Dropped > 1000 || canary.Answered != canary.Arrived || canary.InTime < canary.Answered {
		t.Errorf("%d dropped, %d failed; the canary answered %d of %d, %d in time", all.Dropped, all.Failed,
			canary.Answered, canary.Arrived, canary.InTime)
	}
	if one, both := canary.Latency.Quantile(0.01), all.Latency.Quantile(0.01); one < 3*both/2 ||
		canary.GPUHours > 0.34*all.GPUHours {
		t.Errorf("%v, all %v; %g of %g GPU-hours", one, both, canary.GPUHours, all.GPUHours)
	}
}
