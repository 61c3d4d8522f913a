package show

import "time"

// Sample is the state of the machine at an instant.
type Sample struct {
	At          time.Time `json:"at"`
	Allocated   int64     `json:"allocated" doc:"Milli-GPU"`
	Running     int       `json:"running" doc:"Jobs on devices"`
	Waiting     int       `json:"waiting"`
	Free        int64     `json:"free" doc:"Milli-GPU on nodes that take jobs"`
	Usable      int64     `json:"usable" doc:"Milli-GPU of that which the tasks submitted last could use on average; the rest are fragments"`
	Utilisation *float64  `json:"utilisation,omitempty" doc:"Percent, mean over the measured GPUs; absent: none is measured"`
}

// Whole is all nodes of a cluster together.
type Whole struct {
	Nodes     int      `json:"nodes"`
	Off       int      `json:"off" doc:"Nodes on which nothing starts now"`
	GPUs      int      `json:"gpus"`
	Free      int64    `json:"free" doc:"Milli-GPU"`
	Unhealthy int      `json:"unhealthy" doc:"GPUs"`
	CPU       int64    `json:"cpu" doc:"Milli-cores"`
	RAM       int64    `json:"ram" doc:"MiB"`
	Models    []string `json:"models"`
}

// Overview is the whole machine in one answer.
type Overview struct {
	At      time.Time      `json:"at" doc:"The server's clock"`
	Counts  map[string]int `json:"counts" doc:"Jobs that are not over, by state"`
	Nodes   []Node         `json:"nodes" doc:"On a cluster at most a hundred, those with something wrong first"`
	Whole   *Whole         `json:"whole,omitempty" doc:"On a cluster: all nodes together"`
	Left    *Left          `json:"left,omitempty" doc:"What is free on all nodes that take jobs; absent: not known"`
	Queues  []Queue        `json:"queues"`
	Running []Job          `json:"running" doc:"Jobs that are not waiting, the first hundred"`
	Waiting []Job          `json:"waiting" doc:"The first in line, with place and expected start"`
	Links   []Link         `json:"links,omitempty" doc:"Of the network, the busiest first, where it is described and jobs transmit"`
	Series  []Sample       `json:"series" doc:"The last hour, since the daemon started"`
}
