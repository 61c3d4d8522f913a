package show

// Fair has the components of the order of waiting jobs, where the policy's order is a sum of weighted factors,
// and of fair shares.
type Fair struct {
	Policy  string     `json:"policy"`
	Counted bool       `json:"counted" doc:"The policy considers users, so that usage and factors are counted; otherwise they are 0"`
	Shares  []Share    `json:"shares" doc:"Queues, parents first, then the users in them"`
	Weights *Factors   `json:"weights,omitempty" doc:"Points that a factor of 1 is worth; absent: the policy's order is no sum of factors"`
	Jobs    []Priority `json:"jobs,omitempty" doc:"Waiting jobs, by number"`
}

// Share is a queue, or a user in one, in the Fair Tree.
type Share struct {
	Queue     string  `json:"queue"`
	Parent    string  `json:"parent,omitempty" doc:"Of a queue"`
	User      string  `json:"user,omitempty" doc:"Absent: the queue itself"`
	Shares    int64   `json:"shares"`
	Part      float64 `json:"part" doc:"Its fraction of its siblings' shares"`
	Usage     float64 `json:"usage" doc:"GPU-seconds, decayed"`
	UsagePart float64 `json:"usage_part" doc:"Its fraction of its siblings' usage"`
	Factor    float64 `json:"factor,omitempty" doc:"Of a user: rank / users, more is better"`
}

// Factors are those of a job, each from 0 to 1, or their weights.
type Factors struct {
	Age       float64 `json:"age"`
	FairShare float64 `json:"fair_share"`
	Size      float64 `json:"size"`
	Partition float64 `json:"partition"`
}

// Priority has the components of a waiting job's place in the line.
type Priority struct {
	Job     int     `json:"job" doc:"For waiting elements of an array: of the first one"`
	Points  float64 `json:"points" doc:"The sum of the weighted factors and its own"`
	Own     int64   `json:"own" doc:"The job's own priority: --priority, or minus --nice"`
	Factors Factors `json:"factors"`
}
