package job

// PaceUnit is the unit in which a pace is measured.
type PaceUnit uint8

// The units. Measurements in samples and in steps are not comparable.
const (
	PaceSteps   PaceUnit = iota // steps of a job, or of all jobs of its model
	PaceSamples                 // samples: a step may hold more of them with more tasks
)

// Anchor converts a job's measurements to speeds.
type Anchor struct {
	Revision int32 // of paces, for which the rest is valid; 0: none
	Unit     PaceUnit
	Few      bool    // fewer than two measurements: use the table
	By       float64 // ppm per unit of pace
	Guessed  map[string]int64
}
