//go:build linux

package server

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/show"
)

// Metrics counts events for Prometheus. It is the machine's observer.
type Metrics struct {
	reg         *prometheus.Registry
	steps       prometheus.Histogram
	stores      prometheus.Histogram
	notStored   prometheus.Counter
	submissions prometheus.Counter
	preemptions *prometheus.CounterVec
	ended       *prometheus.CounterVec
	idle        *prometheus.CounterVec
	predictions *prometheus.HistogramVec
	requests    *prometheus.CounterVec
}

// NewMetrics makes the counters.
func NewMetrics() *Metrics {
	// From 10 microseconds, a step in which little changed, to 10 s.
	quick := []float64{1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10}
	// From a second to a day.
	slow := []float64{1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	m := &Metrics{reg: prometheus.NewRegistry(),
		steps: prometheus.NewHistogram(
			prometheus.HistogramOpts{Name: "muster_step_duration_seconds", Help: "Time to decide a step.",
				Buckets: quick}),
		stores: prometheus.NewHistogram(
			prometheus.HistogramOpts{Name: "muster_store_write_duration_seconds", Help: "Time to store a step durably.",
				Buckets: quick}),
		notStored: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "muster_store_write_failures_total",
				Help: "Attempts to store a step that failed."}),
		submissions: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "muster_submissions_total",
				Help: "Jobs submitted; each element of an array is one."}),
		preemptions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_preemptions_total",
			Help: "Jobs preempted: for a higher tier, to give a queue back what it is owed, for a higher priority, other."}, []string{"reason"}),
		ended: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "muster_jobs_ended_total", Help: "Jobs that are over, by how they ended."},
			[]string{"state"}),
		idle: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_idle_actions_total",
			Help: "What was done about jobs that do not use their GPUs: warned, demoted, stopped; busy: it was taken back."}, []string{"action"}),
		predictions: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_prediction_error_seconds",
			Help: "By how much jobs started later or earlier than was first predicted.", Buckets: slow},
			[]string{"direction"}),
		requests: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "muster_http_requests_total", Help: "Requests answered."},
			[]string{"route", "code"})}
	m.reg.MustRegister(m.steps, m.stores, m.notStored, m.submissions, m.preemptions, m.ended, m.idle, m.predictions,
		m.requests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Stepped implements local.Observer.
func (m *Metrics) Stepped(took, stored time.Duration) {
	m.steps.Observe(took.Seconds())
	m.stores.Observe(stored.Seconds())
}

// NotStored implements local.Observer.
func (m *Metrics) NotStored() { m.notStored.Inc() }

// Submitted implements local.Observer.
func (m *Metrics) Submitted(jobs int) { m.submissions.Add(float64(jobs)) }

// Preempted implements local.Observer.
func (m *Metrics) Preempted(reason string) { m.preemptions.WithLabelValues(reason).Inc() }

// Ended implements local.Observer.
func (m *Metrics) Ended(state string) { m.ended.WithLabelValues(state).Inc() }

// Idle implements local.Observer.
func (m *Metrics) Idle(what string) { m.idle.WithLabelValues(what).Inc() }

// Predicted implements local.Observer.
func (m *Metrics) Predicted(late time.Duration) {
	direction := "late"
	if late < 0 {
		direction = "early"
	}
	m.predictions.WithLabelValues(direction).Observe(late.Abs().Seconds())
}

// state collects what is read when the metrics are requested.
type state struct {
	m    *local.Machine
	info Info

	build, jobs, oldest, gpus, ratio, ready, idle     *prometheus.Desc
	free, usable                                      *prometheus.Desc
	queueHolds, queueOwed, queueLimit, queueJobs, cap *prometheus.Desc
	link, linkCounted                                 *prometheus.Desc
}

func newState(m *local.Machine, info Info) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &state{m: m, info: info,
		build: desc("muster_info", "The server: version, policy, placer, and whether the GPUs are simulated.",
			"version", "policy", "placer", "simulated"),
		jobs:   desc("muster_jobs", "Jobs that are not over, by state.", "state"),
		oldest: desc("muster_oldest_pending_seconds", "How long the job that waits longest waits already."),
		idle: desc("muster_idle_jobs", "Running jobs that do not use their GPUs, by what was done about them.",
			"stage"),
		gpus: desc("muster_gpus", "GPUs, by state: allocated (whole or in part), free, unhealthy.", "state"),
		ratio: desc("muster_gpu_allocated_ratio",
			"Share of the healthy GPUs that jobs hold, parts counted as parts."),
		free: desc("muster_free_gpus", "GPUs that are free on nodes that take jobs, parts counted as parts."),
		usable: desc("muster_usable_gpus",
			"Of them what the tasks submitted last could use on average; the rest are fragments."),
		ready:      desc("muster_ready", "1: the last step could be stored."),
		cap:        desc("muster_node_draining", "1: the node takes no more jobs.", "node"),
		queueHolds: desc("muster_queue_allocated_gpus", "GPUs that a queue's jobs hold.", "queue"),
		queueOwed:  desc("muster_queue_guarantee_gpus", "GPUs that a queue is owed.", "queue"),
		queueLimit: desc("muster_queue_limit_gpus", "GPUs that a queue may hold at most; +Inf: no limit.", "queue"),
		queueJobs:  desc("muster_queue_jobs", "Jobs of a queue, pending or running.", "queue", "state"),
		link: desc("muster_link_load_ratio",
			"Part of a link's rate that jobs take by the model of the network, by class of traffic (0: none).", "link",
			"class"),
		linkCounted: desc("muster_link_counted_ratio",
			"Part of the rate of this machine's link that its network card counted, jobs' traffic or not.", "link")}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	policy, placer := s.m.Scheduling()
	put(s.build, 1, s.info.Version, policy, placer, strconv.FormatBool(s.info.Simulated))
	c := s.m.Counts()
	for _, st := range show.Live {
		put(s.jobs, float64(c.Jobs[st]), st)
	}
	for _, stage := range []string{api.IdleWarned, api.IdleDemoted, api.IdleStopped} {
		put(s.idle, float64(c.Idle[stage]), stage)
	}
	put(s.oldest, c.Oldest.Seconds())
	put(s.ready, truth(s.m.Ready()))
	var allocated, free, bad int
	var held, left, usable int64
	for _, n := range s.m.Nodes() {
		put(s.cap, truth(n.State != "up"), n.Name)
		idle, of := n.Left()
		left, usable = left+idle, usable+of
		for i := range n.GPUs {
			switch g := &n.GPUs[i]; {
			case !g.Healthy:
				bad++
			case g.Free == cluster.Whole:
				free++
			default:
				allocated++
				held += cluster.Whole - g.Free
			}
		}
	}
	put(s.gpus, float64(allocated), "allocated")
	put(s.gpus, float64(free), "free")
	put(s.gpus, float64(bad), "unhealthy")
	put(s.free, gpus(left))
	put(s.usable, gpus(usable))
	if well := allocated + free; well > 0 {
		put(s.ratio, float64(held)/float64(cluster.Whole)/float64(well))
	}
	for _, l := range s.m.Links() {
		for _, c := range l.Classes {
			put(s.link, c.Load, l.Name, strconv.Itoa(c.Class))
		}
		if l.Counted != nil {
			put(s.linkCounted, *l.Counted, l.Name)
		}
	}
	for _, q := range s.m.Queues() {
		put(s.queueHolds, gpus(q.Used), q.Name)
		put(s.queueOwed, gpus(q.Guarantee), q.Name)
		put(s.queueLimit, gpus(q.Limit), q.Name)
		put(s.queueJobs, float64(q.Pending), q.Name, "pending")
		put(s.queueJobs, float64(q.Running), q.Name, "running")
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// gpus converts milli-GPU to GPUs.
func gpus(milli int64) float64 {
	if milli == cluster.Unlimited {
		return math.Inf(1)
	}
	return float64(milli) / float64(cluster.Whole)
}

// metrics registers the metrics of the server's machine.
func (s *Server) metrics() {
	s.opt.Metrics.reg.MustRegister(newState(s.m, s.opt.Info))
	h := promhttp.HandlerFor(s.opt.Metrics.reg, promhttp.HandlerOpts{})
	s.handle("GET /metrics", h.ServeHTTP)
}

// counted counts the answers of a handler.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := s.mux.Handler(r)
		seen := &codeWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { s.opt.Metrics.requests.WithLabelValues(route, strconv.Itoa(seen.code)).Inc() }()
		h.ServeHTTP(seen, r)
	})
}

// codeWriter records the status of an answer.
type codeWriter struct {
	http.ResponseWriter
	code int
	sent bool // the caller was told a status
}

// WriteHeader notes the status, and passes on the first: what is set when the caller has gone in the middle of an
// answer (499) is for the count only.
func (c *codeWriter) WriteHeader(code int) {
	c.code = code
	if !c.sent {
		c.sent = code >= 200 // else more is to come
		c.ResponseWriter.WriteHeader(code)
	}
}

func (c *codeWriter) Write(b []byte) (int, error) {
	c.sent = true
	return c.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the flusher.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
