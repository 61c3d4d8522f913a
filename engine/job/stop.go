package job

// StopReason is the reason for which a job stopped.
type StopReason uint8

// The stop reasons.
const (
	Completed StopReason = iota // by itself, successfully
	Failed                      // by itself, unsuccessfully
	WasCancelled
	TimedOut     // at its time limit
	Preempted    // by the engine; it waits again
	NodeLost     // its node, or a GPU of it, was lost; it waits again
	LaunchFailed // its launch failed too often
	Impossible   // it can never run here: rejected
	NeverReady   // a dependency can no longer be satisfied
)

// How is a way to stop a job.
type How uint8

// The ways to stop a job.
const (
	Suspend    How = iota // freeze in place; memory stays, nothing is lost
	Checkpoint            // ask for a checkpoint, wait for the grace, then stop
	Kill                  // stop after the grace; work since the last checkpoint is lost
	// go on until another job has come in its place, at most for the grace, then Kill: for moves (cluster.Job.Replace)
	Replace
)
