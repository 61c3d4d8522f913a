package job

// PaceUnit says what is counted when a pace is measured.
type PaceUnit uint8

// The units. What was measured in samples is not compared with what was in steps.
const (
	PaceSteps   PaceUnit = iota // steps of a job, or of its model
	PaceSamples                 // samples: steps may hold more of them with more tasks
)

// Anchor is what a job's measurements are multiplied with to be its speeds.
type Anchor struct {
	Revision int32 // of paces, for which the rest holds; 0: nothing does
	Unit     PaceUnit
	Few      bool    // there are less than two measurements: the table holds
	By       float64 // ppm per unit of pace
	Guessed  map[string]int64
}
