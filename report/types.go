// Package report turns the books of a run, recorded or live, into figures, tables and pages. It
// does not depend on engines or drivers.
package report

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Outcome is how a job ended.
type Outcome uint8

// The outcomes.
const (
	Unfinished Outcome = iota
	Completed
	Failed
	Cancelled
	TimedOut
	Rejected // it could never run, or its dependency could never be satisfied
	Lost     // not requeued after a preemption or a failure
)

// Answer is a policy's answer to a job's deadline.
type Answer uint8

// The answers.
const (
	Unanswered Answer = iota // no deadline, or the policy does not answer deadlines
	Accepted
	Declined // the job runs when it can
)

// Record is the outcome of one job.
type Record struct {
	Submit      cluster.Time
	FirstStart  cluster.Time // Never: it never started
	End         cluster.Time // Never: it did not end
	Outcome     Outcome
	Waited      time.Duration // pending, over all waits
	Ran         time.Duration // on devices, over all runs
	Busy        int64         // milli-GPU-milliseconds computing
	Held        int64         // milli-GPU-milliseconds on devices
	Worth       int64         // ... weighted by the GPU models' weights
	Lost        int64         // of Busy: work thrown away
	Sending     int64         // of Busy: waiting for traffic, its own or that of others
	Contended   int64         // of Sending: because of other jobs
	Preemptions int32
	Losses      int32 // stops by node or GPU failure
	GPUs        int32
	Queue       int32
	Answer      Answer // the first answer to its deadline
	Why         string // reason of a rejection
}

// Kind is the GPUs of one model with their weight, in thousandths.
type Kind struct {
	Model  string
	GPUs   int
	Weight int64
}

// LinkLoad is how busy one direction of a link of the network was, in the mean over a run.
type LinkLoad struct {
	Name string  `json:"name"`
	Rate int64   `json:"rate"` // bits per second
	Load float64 `json:"load"` // part of the rate
}

// Service is what became of a service's requests in a run. Times are seconds.
type Service struct {
	Service    string  `json:"service"`
	Scaling    string  `json:"scaling"`
	Policy     string  `json:"policy"`
	Requests   int64   `json:"requests"`
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput_per_s"`
	P50        float64 `json:"p50_s"`
	P99        float64 `json:"p99_s"`
	P999       float64 `json:"p999_s"`
	Batch      float64 `json:"mean_batch"`
	Dropped    int64   `json:"dropped"`
	Refused    int64   `json:"refused"`
	Failed     int64   `json:"failed"`
	GPUHours   float64 `json:"gpu_hours"`
	PerHour    float64 `json:"requests_per_gpu_hour"`
	Cost       float64 `json:"cost"`
	PerCost    float64 `json:"requests_per_cost,omitempty"` // 0: no variant has a cost
	Accuracy   float64 `json:"accuracy,omitempty"`
	TTFT       float64 `json:"ttft_p99_s,omitempty"`
	TPOT       float64 `json:"tpot_p99_s,omitempty"`
	Tokens     float64 `json:"tokens_per_gpu_hour,omitempty"`
	Peak       int     `json:"peak_replicas"`
	Started    int     `json:"replicas_started"`
	Warm       int     `json:"warm_starts"`
	Evicted    int     `json:"replicas_evicted"`
	Hash       string  `json:"hash"`
}

// Span is a job's stay on some devices, for the Gantt strips of small runs.
type Span struct {
	Job   cluster.JobID
	Node  int32
	GPUs  uint64
	Share int32
	From  cluster.Time
	To    cluster.Time
}

// Run is the books of one run.
type Run struct {
	Policy   string // with its knobs
	Placer   string
	Backfill string
	Traffic  string // how the network treats jobs' traffic; empty: no network is described
	Cluster  string // description
	Trace    string
	Capacity cluster.Milli
	Kinds    []Kind          // GPU models with weights; none: all count the same
	Nodes    []string        // names, for the Gantt strips
	GPUs     []int           // per node
	Queues   []string        // indexed by Record.Queue; at most maxQueues
	Owed     []cluster.Milli // guarantee per queue; 0: none
	Epoch    int64           // Unix seconds of Time 0; 0: no calendar
	Jobs     []*cluster.Job
	Ideal    []time.Duration // run time alone on the reference GPU, per job
	Records  []Record
	Active   []float64 // mean number of active jobs over each job's life
	Series   Series
	Spans    []Span     // empty: too many to draw
	Power    []Power    // by group of nodes that may sleep; none: no node may
	Links    []LinkLoad // of the network, the busiest first; none: no network is described
	Services []Service  // that were played beside the jobs
	Failures int
	First    cluster.Time // first submission
	Last     cluster.Time // last end
	Hash     uint64
	Partial  bool          // it was interrupted
	Wall     time.Duration // of the machine
	Decided  int64         // number of engine steps
}

// Rejected counts the jobs that were rejected, and returns the first.
func (r *Run) Rejected() (first, n int) {
	for k := range r.Records {
		if r.Records[k].Why != "" {
			if n++; n == 1 {
				first = k
			}
		}
	}
	return first, n
}

// OfFirst returns the books of the first n jobs alone; curves stay those of all.
func (r *Run) OfFirst(n int) Run {
	own := *r
	own.Jobs, own.Ideal, own.Records, own.Active = r.Jobs[:n], r.Ideal[:n], r.Records[:n], r.Active[:n]
	own.Spans = slices.DeleteFunc(slices.Clone(r.Spans), func(s Span) bool { return int(s.Job) >= n })
	return own
}
