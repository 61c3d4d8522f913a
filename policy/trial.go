package policy

// Trial is a form of a policy that `muster tune` tries on a history, the simplest first.
type Trial struct {
	Knobs, Backfill string // "": the policy's own
	Given           Fact
}

// Fact is what a history must contain for a trial: without it the policy would be judged as
// something else.
type Fact uint16

const (
	Estimates Fact = 1 << iota // run times stated by jobs
	Deadlines
	Queues    // at least two
	Tenants   // at least two queues or users
	Recurring // users, and recurring job names
	Elastic   // jobs with a range of sizes
	Speeds    // several GPU models and a table of speeds
	Short     // history: the policy plans at every event, which takes minutes for a long one
	Pairs     // a table with speeds of jobs next to others
	Stages    // ... or with the stages of their iterations
	Divided   // GPUs that can be divided, and a table with speeds on instances
	Memory    // jobs that state how much GPU memory they need, and how much stays resident
	Tiers     // best-effort jobs as well as others
)

// Stated are the facts that a history or a table must state of jobs.
const Stated = Estimates | Deadlines | Recurring | Elastic | Speeds | Pairs | Stages | Divided | Memory
