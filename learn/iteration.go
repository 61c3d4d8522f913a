package learn

import "math"

// Iteration has the factors of the time of an iteration of a data-parallel job with ring all-reduce (the
// physical model of Meta-RL, TCC'23).
type Iteration struct {
	Compute   float64 // seconds, without other jobs on its nodes
	Colo      float64 // most other jobs on one of its nodes
	Each      float64 // the fraction of Compute that each of them costs
	GPUs      float64
	Size      float64 // of the model, in GB
	Bandwidth float64 // of the slowest link, in GB/s
	Share     float64 // the fraction of that link that it gets
}

// Seconds is T = T_comp*(1+a*colo) + 2(g-1)/g * size/bandwidth/share.
func (i *Iteration) Seconds() float64 {
	t := float64(i.Compute * (1 + float64(i.Each*i.Colo)))
	if i.GPUs > 1 {
		t += float64(2*(i.GPUs-1)/i.GPUs*i.Size) / i.Bandwidth / i.Share
	}
	return t
}

// The links of the worlds in which placing is learned, in GB/s: inside a node, between nodes of a rack, and
// between racks.
const (
	linkNode = 100.0
	linkRack = 5.0
	linkAny  = 2.5
)

// features are what the performance model sees of an iteration: no link speeds, which it has to learn from
// measurements at each distance.
func (i *Iteration) features(spread, racks float64) []float64 {
	return []float64{Log(i.Compute), Log(i.Size), i.Colo / 4, (i.GPUs - 1) / i.GPUs, spread, racks, 1/i.Share - 1,
		log2(i.GPUs) / 4}
}

const modelInputs = 8

// Members is the number of regressors of the performance model.
const Members = 5

// PerfModel predicts the logarithm of an iteration's time: an ensemble of small regressors trained on different
// samples of the measurements. Their mean is the prediction; their disagreement measures uncertainty.
type PerfModel struct {
	nets   [Members]*Net
	adam   [Members]Adam
	random *Rand
	seen   []measured
	Drift  CUSUM
	Drifts int
}

type measured struct {
	in []float64
	at float64
}

// NewPerfModel makes an untrained model.
func NewPerfModel(seed uint64) *PerfModel {
	m := &PerfModel{random: NewRand(seed), Drift: CUSUM{Slack: 1, Limit: 20, Mean: 1, Dev: 1}}
	for i := range m.nets {
		m.nets[i], m.adam[i].Rate = NewNet(m.random, modelInputs, 16, 16, 1), 3e-3
	}
	return m
}

// Predict is the predicted time of an iteration, in seconds, and how much the regressors disagree: the standard
// deviation of its logarithm.
func (m *PerfModel) Predict(in []float64) (seconds, unsure float64) {
	mean, square := 0.0, 0.0
	for i := range m.nets {
		v := m.nets[i].Forward(in)[0]
		mean += v / Members
		square += float64(v*v) / Members
	}
	return Exp(within(mean, -20, 20)), math.Sqrt(max(0, square-float64(mean*mean)))
}

// mostSeen is how many of the latest measurements are kept.
const mostSeen = 2000

// Measure takes a measurement of an iteration, and reports whether predictions have become so much worse that
// the workload must have changed.
func (m *PerfModel) Measure(in []float64, seconds float64) (drift bool) {
	predicted, _ := m.Predict(in)
	if len(m.seen) >= 200 { // earlier errors mean nothing
		drift = m.Drift.Add(math.Abs(Log(predicted / seconds)))
	}
	if drift {
		m.Drifts++
		m.seen = m.seen[len(m.seen)-len(m.seen)/10:] // older measurements are of another workload
	}
	if m.seen = append(m.seen, measured{in, Log(seconds)}); len(m.seen) > mostSeen {
		m.seen = m.seen[len(m.seen)-mostSeen:]
	}
	return drift
}

// Fit trains each regressor on this many batches, drawn with replacement.
func (m *PerfModel) Fit(batches int) {
	const batch = 32
	if len(m.seen) == 0 {
		return
	}
	var t trace
	var buf [2][]float64
	for i, n := range m.nets {
		grad := n.zero()
		for range batches {
			for range batch {
				x := &m.seen[m.random.Int(len(m.seen))]
				miss := n.forward(n.B[0], x.in, &t)[0] - x.at
				n.backward(&t, []float64{within(miss, -1, 1) / batch}, grad, &buf)
			}
			m.adam[i].Step(n.params(), grad.params(), 1)
		}
	}
	m.usual()
}

// usual records how large errors are while nothing changes: those of the latest measurements.
func (m *PerfModel) usual() {
	list := m.seen[max(0, len(m.seen)-200):]
	mean, square := 0.0, 0.0
	for i := range list {
		p, _ := m.Predict(list[i].in)
		miss := math.Abs(Log(p) - list[i].at)
		mean += miss / float64(len(list))
		square += float64(miss*miss) / float64(len(list))
	}
	m.Drift.Mean = mean
	m.Drift.Dev = max(math.Sqrt(max(0, square-float64(mean*mean))), mean, 0.02)
}
