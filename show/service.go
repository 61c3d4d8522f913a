package show

import "time"

// Service is a service, with what became of its requests in the last minute.
type Service struct {
	Name     string    `json:"name"`
	Owner    string    `json:"owner"`
	Queue    string    `json:"queue,omitempty"`
	Tier     string    `json:"tier"`
	Goal     string    `json:"goal" doc:"What it promises, as text"`
	Scaling  string    `json:"scaling" doc:"Policy that chooses how many replicas run"`
	Applied  time.Time `json:"applied"`
	Min      int       `json:"min"`
	Max      int       `json:"max"`
	Scaled   bool      `json:"scaled,omitempty" doc:"Min and max were set by a person, not by its file"`
	Deleting bool      `json:"deleting,omitempty"`

	Wanted  int `json:"wanted" doc:"Replicas that its policy wants"`
	Answers int `json:"answers" doc:"Replicas that answer"`

	Measured   bool    `json:"measured" doc:"The gateway says what became of requests; without it the figures below are 0"`
	Rate       float64 `json:"rate" doc:"Requests per second"`
	Median     float64 `json:"median_s" doc:"Seconds from arrival to answer"`
	Quantile   float64 `json:"quantile_s" doc:"The same at the percentile of its goal"`
	Percentile float64 `json:"percentile"`
	Attainment float64 `json:"attainment" doc:"Part of the requests that were answered within the goal"`
	Waiting    int     `json:"waiting" doc:"Requests that wait now"`
	Batch      float64 `json:"batch" doc:"Requests in a batch, in the mean"`
	Dropped    int64   `json:"dropped" doc:"Requests that could not be answered in time, or were refused"`
	Failed     int64   `json:"failed" doc:"Requests that replicas failed"`
	PerHour    float64 `json:"cost_per_hour" doc:"Of the replicas that answer"`

	Bulk *ServiceBulk `json:"bulk,omitempty" doc:"Requests of files, which are answered on what the others leave"`

	Loans *ServiceLoans `json:"loans,omitempty" doc:"What it lends, if its file says within which time it has it back"`

	Variants []ServiceVariant `json:"variants"`
	Replicas []ServiceReplica `json:"replicas"`
	Why      []string         `json:"why" doc:"Why it has the replicas that it has, and what is in the way of others"`
	Text     string           `json:"text,omitempty" doc:"Its file"`
}

// ServiceLoans is what other jobs hold while a service does not need it, and how long it took to have it back.
type ServiceLoans struct {
	Replicas int     `json:"replicas" doc:"How many more replicas it may have than it has: what they would hold is lent"`
	Jobs     []int   `json:"jobs" doc:"Jobs that would make room for these replicas, all or part of what they hold"`
	Within   float64 `json:"within_s" doc:"What is promised: seconds from asking to having it"`
	Returns  int     `json:"returns" doc:"How often it was given back"`
	Late     int     `json:"late" doc:"... and later than was promised"`
	Mean     float64 `json:"mean_s"`
	Longest  float64 `json:"longest_s"`
	Last     float64 `json:"last_s"`
}

// ServiceBulk is what becomes of the requests of files.
type ServiceBulk struct {
	Waiting  int     `json:"waiting"`
	Answered int64   `json:"answered" doc:"Since the gateway began"`
	Failed   int64   `json:"failed"`
	Needed   float64 `json:"needed_per_s" doc:"Requests a second that are needed to keep the deadlines of files"`
}

// ServiceVariant is a variant of a service's model.
type ServiceVariant struct {
	Name    string `json:"name"`
	Wanted  int    `json:"wanted"`
	Answers int    `json:"answers"`

	Pipeline int `json:"pipeline,omitempty" doc:"Of a language model: stages of a replica, each with a part of the layers"`
	Tensor   int `json:"tensor,omitempty" doc:"Of a language model: GPUs of each stage, which share its layers"`

	Measured []ServiceBatch  `json:"measured,omitempty" doc:"How long batches took, as the gateway saw it"`
	Beside   []ServiceBeside `json:"beside,omitempty" doc:"How much longer they took beside replicas of others on the same GPU"`
}

// ServiceBeside is how much longer batches took while a replica of another variant computed on the same GPU.
type ServiceBeside struct {
	Other   string  `json:"other" doc:"SERVICE/VARIANT"`
	Factor  float64 `json:"factor" doc:"Time of a batch over that alone"`
	Batches int64   `json:"batches" doc:"That were measured beside it"`
}

// ServiceBatch is how long batches of a size took, in the mean.
type ServiceBatch struct {
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
}

// ServiceReplica is a replica of a service.
type ServiceReplica struct {
	Job     int       `json:"job"`
	Variant string    `json:"variant"`
	State   string    `json:"state" enum:"waits,starts,answers,hangs,leaves,suspends,over"`
	Since   time.Time `json:"since" doc:"Start of its present run, or its submission"`
	Port    int       `json:"port"`
	Devices []string  `json:"devices,omitempty"`
	Former  bool      `json:"former,omitempty" doc:"It runs what the service's former file says, and is being replaced"`
	Problem string    `json:"problem,omitempty"`
}
