package job

// StopReason says why a job stopped.
type StopReason uint8

// The stop reasons.
const (
	Completed StopReason = iota // by itself, successfully
	Failed                      // by itself, unsuccessfully
	WasCancelled
	TimedOut     // at its time limit
	Preempted    // by the engine; it waits again
	NodeLost     // its node, or a GPU of it, was lost; it waits again
	LaunchFailed // it could not be started too many times
	Impossible   // it can never run here: rejected
	NeverReady   // a dependency can no longer be satisfied
)

// How says how a job is stopped.
type How uint8

// The ways to stop a job.
const (
	Suspend    How = iota // freeze in place; memory stays, nothing is lost
	Checkpoint            // ask for a checkpoint, wait for the grace, then stop
	Kill                  // stop after the grace; work since the last checkpoint is lost
)
