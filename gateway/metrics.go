package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for which a request gets no answer from a replica.
const (
	reasonLate = "late"
	reasonFull = "queue_full"
	reasonNone = "no_replica"
)

// metrics are the gateway's, for Prometheus. Labels take only values that are configured, so that callers cannot create
// series.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	queue    *prometheus.HistogramVec
	batch    *prometheus.HistogramVec
	drops    *prometheus.CounterVec
	retries  *prometheus.CounterVec
	cold     *prometheus.CounterVec
}

var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

func newMetrics(s *Server) *metrics {
	service := []string{"service"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_requests_total",
			Help: "Requests by the status of their answer; 499: the client left. No service: none was named."},
			[]string{"service", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_gateway_request_duration_seconds",
			Help: "From a request's arrival to the end of its answer.", Buckets: seconds}, service),
		queue: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_gateway_queue_duration_seconds",
			Help: "How long requests waited for a replica, of those that had to.", Buckets: seconds}, service),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_gateway_batch_size",
			Help: "Samples of the batches that were computed.", Buckets: prometheus.ExponentialBuckets(1, 2, 11)},
			service),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_drops_total",
			Help: "Requests that no replica was given: late, queue_full, no_replica."}, []string{"service", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_retries_total",
			Help: "Requests that were given to a second replica, because the first died."}, service),
		cold: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_cold_starts_total",
			Help: "How often requests waited for a service to have its first replica."}, service),
	}
	m.registry.MustRegister(m.requests, m.duration, m.queue, m.batch, m.drops, m.retries, m.cold, gauges{s})
	return m
}

// Metrics describes the gateway's metrics.
func Metrics(to chan<- *prometheus.Desc) { newMetrics(nil).registry.Describe(to) }

// meters are the metrics of one service.
type meters struct {
	all      *metrics
	service  string
	duration prometheus.Observer
	queue    prometheus.Observer
	batch    prometheus.Observer
	retries  prometheus.Counter
	cold     prometheus.Counter
}

func (m *metrics) of(service string) meters {
	return meters{m, service, m.duration.WithLabelValues(service), m.queue.WithLabelValues(service),
		m.batch.WithLabelValues(service), m.retries.WithLabelValues(service),
		m.cold.WithLabelValues(service)}
}

// end removes the series of a service that is gone.
func (m *metrics) end(service string) {
	of := prometheus.Labels{"service": service}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.requests, m.duration, m.queue, m.batch, m.drops, m.retries, m.cold} {
		v.DeletePartialMatch(of)
	}
}

func (m *meters) queued(took time.Duration) { m.queue.Observe(took.Seconds()) }

func (m *meters) drop(reason string) { m.all.drops.WithLabelValues(m.service, reason).Inc() }

// count counts an answer. A status outside of what HTTP defines counts as "other".
func (m *metrics) count(service string, status int) {
	code := "other"
	switch {
	case status == 200:
		code = "200"
	case status >= 100 && status < 600:
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(service, code).Inc()
}

// gauges are read when they are asked for.
type gauges struct{ server *Server }

var (
	waitingGauge = prometheus.NewDesc("muster_gateway_queue_length", "Requests that wait for a replica.",
		[]string{"service"}, nil)
	openGauge = prometheus.NewDesc("muster_gateway_replicas_open", "Replicas that are given requests.",
		[]string{"service"}, nil)
	busyGauge = prometheus.NewDesc("muster_gateway_in_flight", "Requests, or batches, that replicas answer now.",
		[]string{"service"}, nil)
)

// Describe lists the gauges.
func (g gauges) Describe(to chan<- *prometheus.Desc) {
	to <- waitingGauge
	to <- openGauge
	to <- busyGauge
}

// Collect reads the gauges.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	for _, c := range g.server.Report().Services {
		open, busy := 0, 0
		for _, r := range c.Each {
			if r.Open {
				open++
			}
			busy += r.Busy
		}
		for desc, n := range map[*prometheus.Desc]int{waitingGauge: c.Waiting, openGauge: open, busyGauge: busy} {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), c.Name)
		}
	}
}
