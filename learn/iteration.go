package learn

import "math"

// Iteration is what decides how long an iteration of a data-parallel job takes that adds up
// its gradients in a ring (the physical form of Meta-RL, TCC'23).
type Iteration struct {
	Compute   float64 // seconds, alone on its nodes
	Colo      float64 // jobs beside it on its nodes, at most
	Each      float64 // the part of Compute that each of them costs
	GPUs      float64
	Size      float64 // of the model, in GB
	Bandwidth float64 // of the slowest link, in GB/s
	Share     float64 // the part of that link that it has
}

// Seconds is T = T_comp*(1+a*colo) + 2(g-1)/g * size/bandwidth/share.
func (i *Iteration) Seconds() float64 {
	t := float64(i.Compute * (1 + float64(i.Each*i.Colo)))
	if i.GPUs > 1 {
		t += float64(2*(i.GPUs-1)/i.GPUs*i.Size) / i.Bandwidth / i.Share
	}
	return t
}

// The links of the worlds in which placing is learned, in GB/s: inside a node, from node
// to node in a rack, and from rack to rack.
const (
	linkNode = 100.0
	linkRack = 5.0
	linkAny  = 2.5
)

// features are what the performance model sees of an iteration: no link speed, which it has
// to find out from what is measured at each distance.
func (i *Iteration) features(spread, racks float64) []float64 {
	return []float64{Log(i.Compute), Log(i.Size), i.Colo / 4, (i.GPUs - 1) / i.GPUs, spread, racks, 1/i.Share - 1, log2(i.GPUs) / 4}
}

const modelInputs = 8

// Members is how many regressors the performance model has.
const Members = 5

// PerfModel predicts the logarithm of how long an iteration takes: small regressors that have seen
// different parts of what was measured. Their mean is the prediction; where they differ, little is known.
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

// NewPerfModel makes one that knows nothing.
func NewPerfModel(seed uint64) *PerfModel {
	m := &PerfModel{random: NewRand(seed), Drift: CUSUM{Slack: 1, Limit: 20, Mean: 1, Dev: 1}}
	for i := range m.nets {
		m.nets[i], m.adam[i].Rate = NewNet(m.random, modelInputs, 16, 16, 1), 3e-3
	}
	return m
}

// Predict is how long an iteration is believed to take, in seconds, and how little the regressors agree:
// the standard deviation of its logarithm.
func (m *PerfModel) Predict(in []float64) (seconds, unsure float64) {
	mean, square := 0.0, 0.0
	for i := range m.nets {
		v := m.nets[i].Forward(in)[0]
		mean += v / Members
		square += float64(v*v) / Members
	}
	return Exp(within(mean, -20, 20)), math.Sqrt(max(0, square-float64(mean*mean)))
}

// mostSeen is how many measurements are kept, the latest.
const mostSeen = 2000

// Measure takes what was measured of an iteration, and reports whether what is predicted has become so much worse
// that the workload must have changed.
func (m *PerfModel) Measure(in []float64, seconds float64) (drift bool) {
	predicted, _ := m.Predict(in)
	if len(m.seen) >= 200 { // before, errors say nothing
		drift = m.Drift.Add(math.Abs(Log(predicted / seconds)))
	}
	if drift {
		m.Drifts++
		m.seen = m.seen[len(m.seen)-len(m.seen)/10:] // what was learned before is of another world
	}
	if m.seen = append(m.seen, measured{in, Log(seconds)}); len(m.seen) > mostSeen {
		m.seen = m.seen[len(m.seen)-mostSeen:]
	}
	return drift
}

// Fit has each regressor learn from so many batches, drawn with replacement.
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

// usual notes how large errors are while nothing changes: those of the latest measurements.
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
