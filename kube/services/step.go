package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/services/load"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// fleet is what there is of a service, by variant.
type fleet struct {
	have     []int           // replicas that the objects should have
	ready    []int           // pods that answer
	waiting  []int           // pods that wait for a place
	waits    []time.Duration // for which the first of these has waited
	variant  map[string]int  // of pods that can be asked, by their ID
	silent   [][]string      // names of pods that do not answer
	replicas []load.Replica  // that can be asked
	problem  error           // why others cannot
}

func (f *fleet) total(of []int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

// step looks at a service and sets its replicas.
func (r *Room) step(ctx context.Context, s *running, now time.Time) {
	s.decided = now
	if st, refuses := r.refusal(s); refuses {
		r.hide(s)
		r.tell(ctx, s, st)
		return
	}
	f, err := r.fleet(ctx, s, now)
	if err != nil {
		r.opt.Log.Warn("services: pods are not known", "service", s.object.String(), "error", err)
		return
	}
	s.adopted = s.adopted || s.recorded().adopts()
	if st, leave := r.persons(s, f, now); leave {
		r.weigh(ctx, s, f.ready)
		r.follow(ctx, s, f, f.have, now)
		r.show(s, f, f.have)
		r.tell(ctx, s, st)
		return
	}
	want, st, why := r.decide(ctx, s, f, now)
	next := s.inOrder(f, want, now)
	s.left = map[types.UID]int{}
	for i, o := range s.parts { // what is more comes first
		if o != nil {
			s.left[o.UID] = f.have[i]
			if next[i] > f.have[i] {
				r.scale(ctx, s, i, f.have[i], next[i], why)
			}
		}
	}
	staying := make([]int, len(next))
	for i := range next {
		staying[i] = min(next[i], f.ready[i])
	}
	r.weigh(ctx, s, staying)
	for i, o := range s.parts {
		if o != nil && next[i] < f.have[i] {
			r.scale(ctx, s, i, f.have[i], next[i], why)
		}
	}
	r.follow(ctx, s, f, s.leftReplicas(), now)
	r.show(s, f, next)
	s.adopted, s.changed = true, false
	r.tell(ctx, s, st)
}

// leftReplicas is how many replicas the objects have after a step, by variant.
func (s *running) leftReplicas() []int {
	list := make([]int, len(s.parts))
	for i, o := range s.parts {
		if o != nil {
			list[i] = s.left[o.UID]
		}
	}
	return list
}

// refusal says why a service is left alone, if it is.
func (r *Room) refusal(s *running) (status, bool) {
	switch {
	case s.err != nil:
		return status{State: unreadable, Message: s.err.Error()}, true
	case s.taken != nil:
		return status{State: refused, Message: fmt.Sprintf("name: %s is a service called %s already", s.taken,
			s.spec.Name)}, true
	}
	some := false
	for _, o := range s.parts {
		if o == nil {
			continue
		}
		some = true
		if o.refusal != "" {
			return status{State: refused, Message: o.String() + ": " + o.refusal}, true
		}
		if other := r.autoscaler(o); other != nil {
			return status{State: refused, Message: fmt.Sprintf("%s sets the replicas of %s: delete one of the two",
				other, o)}, true
		}
	}
	if !some {
		return status{State: refused, Message: "there is no object whose replicas can be set"}, true
	}
	if lacks := s.withoutPhase(); lacks != "" {
		return status{State: refused, Message: join(lacks, s.lacks())}, true
	}
	if k := s.object; k.kind == inferenceServices {
		const class = "serving.kserve.io/autoscalerClass"
		if c := k.Annotations[class]; c != "external" && c != "none" {
			return status{State: refused, Message: "KServe scales it: annotate it with " + class + ": external"}, true
		}
	}
	return status{}, false
}

// autoscaler finds another that sets an object's replicas; nil: there is none. What KEDA makes for its own objects is
// not named before those.
func (r *Room) autoscaler(o *object) *object {
	for _, k := range []*kind{scaledObjects, autoscalers} {
		for _, a := range r.all(k) {
			if a.Namespace == o.Namespace && a.target == (target{o.kind.group, o.kind.name, o.Name}) {
				return a
			}
		}
	}
	return nil
}

// fleet counts the pods of a service.
func (r *Room) fleet(ctx context.Context, s *running, now time.Time) (*fleet, error) {
	n := len(s.parts)
	f := &fleet{have: make([]int, n), ready: make([]int, n), waiting: make([]int, n), waits: make([]time.Duration, n),
		silent: make([][]string, n), variant: map[string]int{}}
	for i, o := range s.parts {
		if o == nil {
			continue
		}
		if f.have[i] = o.replicas; o.selector == "" {
			continue
		}
		list, err := r.opt.Client.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: o.selector,
			ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		for k := range list.Items {
			p := &list.Items[k]
			if p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
				continue
			}
			if condition(p, v1.PodScheduled) == v1.ConditionFalse {
				f.waiting[i]++
				f.waits[i] = max(f.waits[i], now.Sub(p.CreationTimestamp.Time))
			}
			if condition(p, v1.PodReady) != v1.ConditionTrue {
				f.silent[i] = append(f.silent[i], p.Name)
				continue
			}
			f.ready[i]++
			x, err := replica(&s.spec.Metrics, p)
			if err != nil {
				f.problem = err
				continue
			}
			x.Phase = phase(&s.spec.Variants[i])
			if o.part != nil {
				x.Part = o.part.name
			}
			f.replicas, f.variant[x.ID] = append(f.replicas, x), i
		}
		if o.part != nil {
			f.ready[i] /= o.part.hosts
		}
	}
	return f, nil
}

func condition(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// replica finds out where a pod's metrics are.
func replica(m *service.Metrics, p *v1.Pod) (x load.Replica, err error) {
	const port, path = "prometheus.io/port", "prometheus.io/path"
	x = load.Replica{ID: string(p.UID), Name: p.Name}
	if p.Status.StartTime != nil {
		x.Started = p.Status.StartTime.Time
	}
	number := m.Port
	if text := p.Annotations[port]; number == 0 && text != "" {
		if number, err = strconv.Atoi(text); err != nil || number < 1 || number > 65535 {
			return x, fmt.Errorf("pod %s: %s: %q is not a port", p.Name, port, text)
		}
	}
	if number == 0 {
		var named, all []int32
		for i := range p.Spec.Containers {
			for _, c := range p.Spec.Containers[i].Ports {
				if all = append(all, c.ContainerPort); c.Name == "metrics" {
					named = append(named, c.ContainerPort)
				}
			}
		}
		if len(named) == 1 {
			all = named
		}
		if len(all) > 1 {
			return x, fmt.Errorf("pod %s has several ports: annotate it with %s, or name one in the service's metrics",
				p.Name, port)
		}
		if len(all) == 1 {
			number = int(all[0])
		}
	}
	if number == 0 {
		return x, fmt.Errorf("pod %s has no port: annotate it with %s, or name one in the service's metrics", p.Name,
			port)
	}
	if p.Status.PodIP == "" {
		return x, fmt.Errorf("pod %s has no address", p.Name)
	}
	at := m.Path
	if at == "" {
		at = p.Annotations[path]
	}
	if at == "" {
		at = "/metrics"
	}
	if at[0] != '/' {
		at = "/" + at
	}
	x.Address = "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(number)) + at
	return x, nil
}

// replicasOf are the replicas of a variant as its policy, which knows it by another number, is shown them.
func (f *fleet) replicasOf(variant, number int) (list []scale.Replica) {
	starting := max(0, f.have[variant]-f.ready[variant]-f.waiting[variant])
	for n := range f.have[variant] {
		list = append(list, scale.Replica{Kind: scale.Kind{Variant: number, Share: cluster.Whole},
			Answers: n < f.ready[variant],
			Stuck:   n >= f.ready[variant]+starting && f.waits[variant] >= stuckFor})
	}
	return list
}

// decide asks the service's policy.
func (r *Room) decide(ctx context.Context, s *running, f *fleet, now time.Time) (want []int, st status, why string) {
	l, seen, problem := r.load(ctx, s, f, now)
	s.count(&l)
	s.learn(f, &l)
	bounds := s.spec.Replicas
	st = status{State: scaling, Message: join(s.lacks(), join(r.unlike(s), s.lends()))}
	if s.spec.Metrics.Demand == "" && bounds.Min == 0 {
		bounds.Min = s.fewest()
		kept := "one replica"
		if s.spec.Phased() {
			kept += " of each phase"
		}
		st.Message = join(st.Message, "it keeps "+kept+": without metrics: demand nothing says that requests come")
	}
	if !seen || l.Period == 0 { // how much comes is known from the second look on
		if !seen && f.total(f.ready) > 0 {
			st = status{State: blind, Message: join("what it has to do is not known: "+problem.Error(), s.lacks())}
		}
		n := min(max(f.total(f.have), bounds.Min), bounds.Max)
		return s.keep(f.have, n), st, fmt.Sprintf("at least %d and at most %d replicas", bounds.Min, bounds.Max)
	}
	spec, of := s.spec, []int{}
	spec.Replicas, spec.Variants = bounds, nil
	v := scale.View{Now: cluster.Time(now.UnixNano()), Period: l.Period, Service: &spec, Waiting: l.Waiting,
		GPUs: r.models, Fixed: true, Prompt: s.prompt, Output: s.output, // the pod template says how large they are
		Memory: l.Full, Tell: l.Tell}
	for i, o := range s.parts {
		if o != nil {
			of = append(of, i)
			spec.Variants = append(spec.Variants, s.spec.Variants[i])
			if needsProfile(spec.Scaling) {
				st.Message = join(st.Message, s.profiled(i, &spec, &spec.Variants[len(of)-1]))
			}
			v.Ready = append(v.Ready, f.ready[i])
			v.Coming = append(v.Coming, max(0, f.have[i]-f.ready[i]))
			v.Have = append(v.Have, f.replicasOf(i, len(of)-1)...)
		}
	}
	if s.spec.Phased() && !slices.Equal(of, s.of) { // what the policy remembers is by variant
		s.policy, s.err = scale.Elsewhere(s.spec.Scaling)
		s.of = of
	}
	v.See(&l.Tally)
	s.prompt, s.output = v.Prompt, v.Output
	why = fmt.Sprintf("%.3g requests/s, %d waiting, %s at percentile %g", v.Rate(), l.Waiting,
		v.Latency.Round(time.Millisecond), s.spec.Goal.Percentile)
	if unknown := r.unknown(s, &v); unknown != "" {
		st.Message = join(unknown, st.Message)
		n := min(max(f.total(f.have), bounds.Min), bounds.Max)
		if n == 0 && (v.Arrived > 0 || v.Waiting > 0) {
			n = s.fewest()
		}
		return s.keep(f.have, n), st, why
	}
	want = make([]int, len(s.parts))
	for k, n := range s.policy.Decide(&v) {
		want[of[k]] = n
	}
	if text := scale.Says(s.policy); text != "" {
		why += "; " + text
	}
	if n := f.total(want); n < bounds.Min || n > bounds.Max {
		want = s.keep(want, min(max(n, bounds.Min), bounds.Max))
	}
	if l.Known < f.total(f.ready) { // what the others have to do is not known
		for i := range want {
			want[i] = max(want[i], f.have[i])
		}
		st = status{State: blind, Message: join(
			"some replicas do not say what they have to do, so none is taken away: "+problem.Error(), s.lacks())}
	}
	return want, st, why
}

// unknown says what is missing for a policy to compute what a language model sustains; "": nothing.
func (r *Room) unknown(s *running, v *scale.View) string {
	if !s.spec.Language() || !s.spec.Phased() && !needsProfile(s.spec.Scaling) {
		return ""
	}
	for i := range v.Service.Variants {
		if x := &v.Service.Variants[i]; len(x.GPUTypes) == 0 && len(r.models) == 0 {
			return fmt.Sprintf("variant %s: gpu_types is missing, and no node says of which model its GPUs are (label %s)",
				x.Name, r.opt.Labels.Product)
		}
	}
	if v.Prompt < 1 || v.Output < 1 {
		return "how long prompts and answers are is not known before the first answer"
	}
	return ""
}

// load finds out what a service has to do; seen: it is known, at least of some replicas.
func (r *Room) load(ctx context.Context, s *running, f *fleet, now time.Time) (l load.Load, seen bool, problem error) {
	problem = f.problem
	var readings map[string]load.Reading
	if len(f.replicas) > 0 {
		var err error
		if readings, err = r.opt.Source.Read(ctx, s.object.Namespace, s.spec.Metrics.Server, f.replicas); err != nil {
			problem = err
		}
	}
	l = s.meter.Take(now, &s.spec.Goal, f.replicas, readings)
	seen = l.Known > 0
	if problem == nil {
		problem = errors.New("no replica says anything")
	}
	if query := s.spec.Metrics.Demand; query != "" {
		if r.opt.Demand == nil {
			return l, false, errors.New(
				"metrics: demand: the configuration of Muster names no Prometheus (services.prometheus)")
		}
		rate, err := r.opt.Demand(ctx, query)
		if err != nil {
			return l, false, fmt.Errorf("metrics: demand: %w", err)
		}
		l.Arrived = int64(rate*l.Period.Seconds() + 0.5)
		if rate > 0 && l.Arrived == 0 {
			l.Arrived = 1
		}
		seen = seen || f.total(f.ready) == 0
	}
	return l, seen, problem
}

// lacks names variants without an object, and objects that are no variant.
func (s *running) lacks() (text string) {
	for i, o := range s.parts {
		if o == nil {
			text = join(text, fmt.Sprintf("variant %s: there is no object of that name with the annotation %s: %s",
				s.spec.Variants[i].Name, AnnotationVariant, s.spec.Name))
		}
	}
	for _, name := range s.strange {
		text = join(text, name+" says that it is a variant, and the service has none of that name")
	}
	return text
}

// unlike names the variants whose pods ask for another number of GPUs than the service says: what a replica sustains
// and costs is computed for that.
func (r *Room) unlike(s *running) (text string) {
	names := r.names()
	for i, o := range s.parts {
		if o == nil {
			continue
		}
		v := &s.spec.Variants[i]
		if n := names.Count(o.asks); n > 0 && n != v.Request.GPUs {
			text = join(text, fmt.Sprintf("variant %s: a pod of %s asks for so many GPUs: %d, and gpus of the variant says %d",
				v.Name, o, n, v.Request.GPUs))
		}
	}
	return text
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// keep makes n replicas of those that there are: more of the first variant that runs, or that there is.
func (s *running) keep(have []int, n int) []int {
	list, first := make([]int, len(have)), -1
	for i := range have {
		list[i] = min(have[i], n)
		n -= list[i]
		if s.parts[i] != nil && (first < 0 || list[first] == 0 && list[i] > 0) {
			first = i
		}
	}
	list[first] += n
	return s.bothPhases(list)
}

// How long what replaces others may take until one of those makes room: where it waits for GPUs, and else, unless it
// takes long to start.
const stuckFor, slowFor = 30 * time.Second, 2 * time.Minute

// inOrder lets variants have fewer replicas only once what replaces these is ready; if that takes too long, they make
// room one after another, but for the last that answers. What computes another phase replaces nothing.
func (s *running) inOrder(f *fleet, want []int, now time.Time) []int {
	next := slices.Clone(want)
	for p := range s.stuck {
		s.phaseInOrder(llm.Phase(p), f, want, next, now)
	}
	return next
}

// phaseInOrder is inOrder of the variants of one phase.
func (s *running) phaseInOrder(p llm.Phase, f *fleet, want, next []int, now time.Time) {
	lacks, spare, patience := false, 0, slowFor
	ready, waits := 0, time.Duration(0)
	for i, n := range want {
		if phase(&s.spec.Variants[i]) != p {
			continue
		}
		if n > f.ready[i] {
			lacks = true
			patience = max(patience, 3*s.spec.Variants[i].Startup)
		} else {
			spare += max(0, min(f.have[i], f.ready[i])-n) // a Deployment loses first what does not answer
		}
		ready += f.ready[i]
		waits = max(waits, f.waits[i])
	}
	stuck := &s.stuck[p]
	late := now.Sub(*stuck) > patience
	if waits > 0 { // for so long that the policy knows that there is no place, and may want others instead
		late = min(waits, now.Sub(*stuck)) > stuckFor
	}
	switch {
	case !lacks || spare == 0:
		*stuck = time.Time{}
		return
	case stuck.IsZero():
		*stuck = now
	case late && ready > 1:
		*stuck = now
		spare--
	}
	for i, n := range want {
		if phase(&s.spec.Variants[i]) == p && n <= f.ready[i] {
			more := min(max(0, min(f.have[i], f.ready[i])-n), spare)
			next[i] += more
			spare -= more
		}
	}
}
