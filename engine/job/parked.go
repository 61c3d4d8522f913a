package job

// Parked is the reason for which a pending job is not considered at all.
type Parked uint8

// The reasons for which a job is parked.
const (
	NotParked Parked = iota
	ParkedHold
	ParkedBegin
	ParkedDependency
	ParkedArray
	ParkedSingleton
	ParkedPlan // the policy's plan currently gives it nothing
)
