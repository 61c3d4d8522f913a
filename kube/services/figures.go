package services

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/services/load"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/serving/tally"
)

// figures are what people see of how a service does, in its annotation and as metrics. Counts are since this scheduler
// leads.
type figures struct {
	PerSecond  float64  `json:"per_second"` // requests that arrived, in the last period
	Waiting    int      `json:"waiting"`
	Latency    float64  `json:"latency_seconds,omitempty"` // at the goal's percentile, in the last period
	TTFT       float64  `json:"ttft_seconds,omitempty"`
	TPOT       float64  `json:"tpot_seconds,omitempty"`
	Attainment float64  `json:"attainment"` // part of the requests that were answered within the goal
	Replicas   []copies `json:"replicas"`
	Lends      *returns `json:"lends,omitempty"`

	namespace, name string
	goal            service.Goal
	answered        int64
	inTime          int64
	failed          int64
}

// copies are the replicas of a variant.
type copies struct {
	Variant string `json:"variant"`
	Wanted  int    `json:"wanted"`
	Ready   int    `json:"ready"`
}

// returns say what a service lends, and how it had it back.
type returns struct {
	Replicas int     `json:"replicas"` // more that it may have than it has: what these would hold, others have
	Within   float64 `json:"within_seconds"`
	Number   int     `json:"returns"`
	Late     int     `json:"late"` // later than was promised
	Longest  float64 `json:"longest_seconds"`
	took     float64
}

// lender is the pods of a service that lends.
type lender struct {
	object  *object
	pods    labels.Selector
	within  time.Duration
	service types.UID
	name    string
}

// count adds what became of requests in a period.
func (s *running) count(l *load.Load) {
	t, f := &l.Tally, &s.figures
	f.answered, f.inTime, f.failed = f.answered+t.Answered, f.inTime+t.InTime, f.failed+t.Failed
	f.Attainment = (&tally.Tally{Answered: f.answered, InTime: f.inTime, Failed: f.failed}).Attainment()
	f.Waiting = l.Waiting
	if seconds := l.Period.Seconds(); seconds > 0 {
		f.PerSecond = float64(t.Arrived) / seconds
	}
	part := s.spec.Goal.Percentile / 100
	f.Latency, f.TTFT, f.TPOT = t.Latency.Quantile(part).Seconds(), t.TTFT.Quantile(part).Seconds(),
		t.TPOT.Quantile(part).Seconds()
}

// show publishes the figures of a service that should have so many replicas.
func (r *Room) show(s *running, f *fleet, wanted []int) {
	x := &s.figures
	x.namespace, x.name, x.goal, x.Replicas = s.object.Namespace, s.spec.Name, s.spec.Goal, nil
	for i := range s.parts {
		x.Replicas = append(x.Replicas, copies{s.spec.Variants[i].Name, wanted[i], f.ready[i]})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.Lends = nil; s.spec.Lend.Within > 0 {
		back := r.returns[s.object.UID]
		back.Replicas, back.Within = max(0, s.spec.Replicas.Max-f.total(wanted)), s.spec.Lend.Within.Seconds()
		x.Lends = &back
	}
	r.shown[s.object.UID] = *x
}

// lend notes which pods are of services that lend, and forgets figures of services that are gone.
func (r *Room) lend(list []*running) {
	var all []lender
	var lending []cluster.Lender
	there := map[types.UID]bool{}
	for _, s := range list {
		there[s.object.UID] = s.err == nil
		if l := s.lender(r.models); l != nil {
			lending = append(lending, *l)
		}
		for _, o := range s.parts {
			if o == nil || s.spec.Lend.Within == 0 || s.taken != nil {
				continue
			}
			if pods, err := labels.Parse(o.selector); err == nil && o.selector != "" {
				all = append(all, lender{s.object, pods, s.spec.Lend.Within, s.object.UID, s.title()})
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !reflect.DeepEqual(r.lending, lending) || !slices.EqualFunc(r.lenders, all, lender.same) {
		if r.lending = lending; r.changed != nil {
			defer r.changed()
		}
	}
	r.lenders = all
	for i := range r.early {
		r.returned(r.early[i].pod, r.early[i].took)
	}
	r.early, r.known = nil, true
	for uid := range r.shown {
		if !there[uid] {
			delete(r.shown, uid)
			delete(r.returns, uid)
		}
	}
}

// title names a service among those of all namespaces.
func (s *running) title() string { return s.object.Namespace + "/" + s.spec.Name }

// lender is a service that lends, for the scheduler; nil: it lends nothing.
func (s *running) lender(of []scale.GPUs) *cluster.Lender {
	i := slices.IndexFunc(s.parts, func(o *object) bool { return o != nil })
	if s.err != nil || s.taken != nil || s.spec.Lend.Within == 0 || i < 0 {
		return nil
	}
	v := &s.spec.Variants[i]
	return &cluster.Lender{Service: s.title(), Replicas: s.spec.Replicas.Max,
		Replica: &cluster.Job{GPUTypes: v.GPUTypes, Tasks: []cluster.TaskSet{{Count: 1, Request: v.Request}}},
		Servers: scale.LendsServers(s.policy, of)}
}

// same reports whether two lenders have the same pods.
func (l lender) same(o lender) bool { return l.name == o.name && l.pods.String() == o.pods.String() }

// Lending are the services that lend.
func (r *Room) Lending() []cluster.Lender {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lending
}

// Service is the service that lends whose replica a pod is; "": none.
func (r *Room) Service(p *v1.Pod) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.of(p); l != nil {
		return l.name
	}
	return ""
}

// Watch has a function called whenever other services lend, or have other pods.
func (r *Room) Watch(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed = changed; r.known {
		changed()
	}
}

// hide takes the figures of a service away.
func (r *Room) hide(s *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shown, s.object.UID)
}

// lends says what is in the way of lending.
func (s *running) lends() (text string) {
	for _, o := range s.parts {
		if o != nil && s.spec.Lend.Within > 0 && o.labels[terms.LabelTier] != cluster.Critical.String() {
			text = join(text, fmt.Sprintf("lend: the pods of %s have no label %s: %s, so they may have to wait", o,
				terms.LabelTier, cluster.Critical))
		}
	}
	return text
}

// of is the lender whose pod it is; nil: none's. The room is locked.
func (r *Room) of(p *v1.Pod) *lender {
	for i := range r.lenders {
		if l := &r.lenders[i]; l.object.Namespace == p.Namespace && l.pods.Matches(labels.Set(p.Labels)) {
			return l
		}
	}
	return nil
}

// Within is the time within which the service of a pod has back what it lent; 0: it promises none.
func (r *Room) Within(p *v1.Pod) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.of(p); l != nil {
		return l.within
	}
	return 0
}

// early is what a replica had back before it was known which services lend.
type early struct {
	pod  *v1.Pod
	took time.Duration
}

// Returned notes that a replica has what others made room for, so long after these were asked.
func (r *Room) Returned(p *v1.Pod, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		r.early = append(r.early, early{p, took})
		return
	}
	r.returned(p, took)
}

// returned is Returned once it is known which services lend. The room is locked.
func (r *Room) returned(p *v1.Pod, took time.Duration) {
	l := r.of(p)
	if l == nil {
		return
	}
	b := r.returns[l.service]
	b.Number++
	b.took += took.Seconds()
	b.Longest = max(b.Longest, took.Seconds())
	kind := v1.EventTypeNormal
	if took > l.within {
		b.Late++
		kind = v1.EventTypeWarning
	}
	r.returns[l.service] = b
	r.notices.Event(l.object.reference(), kind, "ServiceReturned", fmt.Sprintf(
		"pod %s has what was lent %s after it was asked back; promised: %s", p.Name, took.Round(time.Millisecond),
		cluster.FormatDuration(l.within)))
}

// metric is a metric of services, which has at least their namespace and name as labels.
type metric struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func describe(name, help string, kind prometheus.ValueType, more ...string) metric {
	return metric{prometheus.NewDesc("muster_kube_service_"+name, help,
		append([]string{"namespace", "service"}, more...), nil), kind}
}

var (
	requestsTotal = describe("requests_total",
		"Requests that were answered within the goal, answered late, or failed, as the model servers say.",
		prometheus.CounterValue, "result")
	requestRate = describe("requests_per_second", "Requests that arrived, in the last period.",
		prometheus.GaugeValue)
	waitingNow = describe("requests_waiting", "Requests that wait at the replicas.", prometheus.GaugeValue)
	latencyNow = describe("latency_seconds", "Latency at the percentile of the goal, in the last period.",
		prometheus.GaugeValue, "kind")
	goalNow  = describe("goal_seconds", "Latency that the service promises.", prometheus.GaugeValue, "kind")
	attained = describe("attainment_ratio", "Part of the requests that were answered within the goal.",
		prometheus.GaugeValue)
	replicasNow = describe("replicas", "Replicas: wanted, by the last decision; ready.", prometheus.GaugeValue,
		"variant", "state")
	lentNow = describe("lent_replicas",
		"Replicas that the service may have and has not: what they would hold is lent.", prometheus.GaugeValue)
	returnsTotal = describe("returns_total", "How often a replica had what was lent, in time or late.",
		prometheus.CounterValue, "result")
	returnTime = describe("return_seconds_total", "Time that this took, together.", prometheus.CounterValue)

	allMetrics = []metric{requestsTotal, requestRate, waitingNow, latencyNow, goalNow, attained, replicasNow, lentNow,
		returnsTotal, returnTime}
)

// Describe implements prometheus.Collector.
func (r *Room) Describe(to chan<- *prometheus.Desc) {
	for _, m := range allMetrics {
		to <- m.Desc
	}
}

// Collect implements prometheus.Collector.
func (r *Room) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.shown {
		add := func(m metric, value float64, more ...string) {
			labels := append([]string{x.namespace, x.name}, more...)
			to <- prometheus.MustNewConstMetric(m.Desc, m.kind, value, labels...)
		}
		add(requestsTotal, float64(x.inTime), "in_time")
		add(requestsTotal, float64(x.answered-x.inTime), "late")
		add(requestsTotal, float64(x.failed), "failed")
		add(requestRate, x.PerSecond)
		add(waitingNow, float64(x.Waiting))
		add(attained, x.Attainment)
		for _, l := range []struct {
			kind string
			now  float64
			goal time.Duration
		}{{"latency", x.Latency, x.goal.Latency}, {"ttft", x.TTFT, x.goal.TTFT}, {"tpot", x.TPOT, x.goal.TPOT}} {
			if l.goal > 0 {
				add(latencyNow, l.now, l.kind)
				add(goalNow, l.goal.Seconds(), l.kind)
			}
		}
		for _, c := range x.Replicas {
			add(replicasNow, float64(c.Wanted), c.Variant, "wanted")
			add(replicasNow, float64(c.Ready), c.Variant, "ready")
		}
		if b := x.Lends; b != nil {
			add(lentNow, float64(b.Replicas))
			add(returnsTotal, float64(b.Number-b.Late), "in_time")
			add(returnsTotal, float64(b.Late), "late")
			add(returnTime, b.took)
		}
	}
}
