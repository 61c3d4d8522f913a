package look

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/show"
)

// Metrics is an observer of the driver (kube.Observer) that answers Prometheus.
type Metrics struct {
	reg                     *prometheus.Registry
	steps, binds            prometheus.Histogram
	failed, evicted, renews *prometheus.CounterVec
	moved, partitioned      *prometheus.CounterVec
	reports                 *prometheus.CounterVec
	unwound                 prometheus.Counter
	aside                   *prometheus.CounterVec
	gangs                   *prometheus.GaugeVec
	leading                 prometheus.Gauge
	gpus, inQueue, oldest   *prometheus.GaugeVec
	links                   *prometheus.GaugeVec
	free, usable            prometheus.Gauge
}

// NewMetrics makes metrics that nothing was told yet.
func NewMetrics() *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry(),
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_kube_step_seconds",
			Help:    "From when a batch of events was complete until the engine had decided.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10)}),
		binds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_kube_pod_bound_seconds",
			Help:    "From a pod's creation (whole seconds) until it was bound.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 12)}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_bind_failures_total",
			Help: "Bindings that were given up."}, []string{"reason"}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_gangs_evicted_total",
			Help: "Gangs (a single pod is one, too) that had to leave."}, []string{"reason"}),
		renews: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_engine_renewed_total",
			Help: "How often the engine was renewed from a snapshot."}, []string{"reason"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_gangs_moved_total",
			Help: "Gangs that were evicted to be elsewhere, by what became of the place that was kept: done, others took it; late, none did in time; differs, what came asks for something else; lost; over, the gang ended."}, []string{"outcome"}),
		partitioned: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_nodes_partitioned_total",
			Help: "Nodes that were to be partitioned otherwise (mig.config), by what became of it: done; failed, mig-manager says so; late, it was not done in time; dropped, another writer changed the node, or no gang needs it any more."}, []string{"outcome"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_reports_total",
			Help: "What pods told of their progress, by what became of it: taken; token, which pod it was could not be told; often, too soon after the one before; nonsense; unknown, not of a pod that Muster started; later, the scheduler did not lead, or could not ask."}, []string{"outcome"}),
		unwound: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_kube_gangs_unwound_total",
			Help: "Gangs that could not be bound as a whole: what was bound of them was deleted."}),
		aside: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_set_aside_total",
			Help: "What was set aside so that everything else goes on: a pod that cannot be managed and only takes room, a node whose GPUs are not used (each has an event that says why), a handler that failed inside the scheduler."}, []string{"what"}),
		gangs: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_kube_gangs",
			Help: "Gangs: gathering, their pods are not all there; waiting; bound, or being so."}, []string{"state"}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_kube_leading",
			Help: "1: this scheduler schedules. 0: it waits to take over, or lists the cluster."}),
		gpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_kube_queue_gpus",
			Help: "GPUs of a queue, those of queues below included: guarantee (in force), used, borrowed (used beyond it), pending (asked for by what waits)."}, []string{"queue", "parent", "kind"}),
		inQueue: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_kube_queue_gangs",
			Help: "Gangs (a single pod is one, too) of a queue that are running or pending."},
			[]string{"queue", "state"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_kube_queue_oldest_pending_timestamp_seconds",
			Help: "When the pod was created that waits longest in a queue; not there if none waits."},
			[]string{"queue"}),
		links: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_link_load_ratio",
			Help: "Part of a link's rate that gangs take by the model of the network, by class of traffic (0: none)."},
			[]string{"link", "class"}),
		free: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_free_gpus",
			Help: "GPUs that are free on nodes that take pods, parts counted as parts."}),
		usable: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_usable_gpus",
			Help: "Of them what the pods submitted last could use on average; the rest are fragments."})}
	m.reg.MustRegister(m.steps, m.binds, m.failed, m.evicted, m.renews, m.moved, m.partitioned, m.reports, m.unwound,
		m.aside, m.gangs, m.leading, m.gpus, m.inQueue, m.oldest, m.links, m.free, m.usable,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Also answers with further metrics, too.
func (m *Metrics) Also(c prometheus.Collector) { m.reg.MustRegister(c) }

// Handler answers GET /metrics.
func (m *Metrics) Handler() http.Handler { return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{}) }

// Stepped implements kube.Observer.
func (m *Metrics) Stepped(took time.Duration) { m.steps.Observe(took.Seconds()) }

// Bound implements kube.Observer.
func (m *Metrics) Bound(waited time.Duration) { m.binds.Observe(waited.Seconds()) }

// BindFailed implements kube.Observer.
func (m *Metrics) BindFailed(reason string) { m.failed.WithLabelValues(reason).Inc() }

// Evicted implements kube.Observer.
func (m *Metrics) Evicted(reason string) { m.evicted.WithLabelValues(reason).Inc() }

// Moved implements kube.Observer.
func (m *Metrics) Moved(outcome string) { m.moved.WithLabelValues(outcome).Inc() }

// Partitioned implements kube.Observer.
func (m *Metrics) Partitioned(outcome string) { m.partitioned.WithLabelValues(outcome).Inc() }

// Reported counts what became of a report of a pod (front.ReportOutcomes).
func (m *Metrics) Reported(outcome string) { m.reports.WithLabelValues(outcome).Inc() }

// Unwound implements kube.Observer.
func (m *Metrics) Unwound() { m.unwound.Inc() }

// SetAside implements kube.Observer.
func (m *Metrics) SetAside(what string) { m.aside.WithLabelValues(what).Inc() }

// Renewed implements kube.Observer.
func (m *Metrics) Renewed(reason string) { m.renews.WithLabelValues(reason).Inc() }

// Gangs implements kube.Observer.
func (m *Metrics) Gangs(gathering, waiting, bound int) {
	m.gangs.WithLabelValues("gathering").Set(float64(gathering))
	m.gangs.WithLabelValues("waiting").Set(float64(waiting))
	m.gangs.WithLabelValues("bound").Set(float64(bound))
}

// Leading implements kube.Observer.
func (m *Metrics) Leading(yes bool) {
	m.leading.Set(0)
	if yes {
		m.leading.Set(1)
	}
}

// Free implements kube.Observer.
func (m *Metrics) Free(free, usable cluster.Milli) {
	m.free.Set(inGPUs(free))
	m.usable.Set(inGPUs(usable))
}

// Links implements kube.Observer.
func (m *Metrics) Links(list []show.Link) {
	m.links.Reset()
	for i := range list {
		for _, c := range list[i].Classes {
			m.links.WithLabelValues(list[i].Name, strconv.Itoa(c.Class)).Set(c.Load)
		}
	}
}

// Queues implements kube.Observer.
func (m *Metrics) Queues(list []queues.Figures) {
	for _, v := range []*prometheus.GaugeVec{m.gpus, m.inQueue, m.oldest} {
		v.Reset() // queues come and go
	}
	for i := range list {
		q := &list[i]
		for kind, v := range map[string]cluster.Milli{"guarantee": q.Guarantee, "used": q.Used,
			"borrowed": max(0, q.Used-q.Guarantee), "pending": q.PendingGPUs} {
			m.gpus.WithLabelValues(q.Name, q.Parent, kind).Set(inGPUs(v))
		}
		m.inQueue.WithLabelValues(q.Name, "running").Set(float64(q.Running))
		m.inQueue.WithLabelValues(q.Name, "pending").Set(float64(q.Pending))
		if !q.Oldest.IsZero() {
			m.oldest.WithLabelValues(q.Name).Set(float64(q.Oldest.Unix()))
		}
	}
}

// MetricNames lists the metrics of Muster's own, without those of Go.
func MetricNames(m *Metrics) (list []string) {
	all := make(chan *prometheus.Desc, 1024)
	m.reg.Describe(all)
	close(all)
	for d := range all {
		if name := fqName.FindStringSubmatch(d.String()); name != nil && strings.HasPrefix(name[1], "muster_") {
			list = append(list, name[1])
		}
	}
	slices.Sort(list)
	return list
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func inGPUs(m cluster.Milli) float64 { return float64(m) / float64(cluster.Whole) }
