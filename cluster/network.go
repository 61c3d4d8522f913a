package cluster

import "time"

// Network is what carries traffic between the nodes of a cluster: links between nodes and switches, and between
// switches. Nodes of one NVLink domain (Node.NVLink) need none of it among each other.
type Network struct {
	Links []Link `json:"links"`
	// Classes is how many classes of traffic the switches keep apart by strict priority; 0 or 1: none. Ethernet
	// and InfiniBand have at most 8.
	Classes int `json:"classes,omitempty"`
	// Models has the traffic of jobs by what they compute (Job.Model), for those that do not state it.
	Models []ModelTraffic `json:"models,omitempty"`
	// Unknown are names of Models that jobs on several nodes are taken for, in turn by their number, if nothing is
	// known of them. A simulation only: a driver of real machines does not guess.
	Unknown []string `json:"unknown,omitempty"`
}

// Link joins two nodes or switches. It carries Rate in each direction at the same time. A node has as many links
// as it has network cards; those of the same position among a node's links are one rail.
type Link struct {
	A    string `json:"a"`    // a node or a switch
	B    string `json:"b"`    // a switch
	Rate int64  `json:"rate"` // bits per second
}

// ModelTraffic is the traffic of jobs that compute a model.
type ModelTraffic struct {
	Model   string  `json:"model"`
	Traffic Traffic `json:"traffic"`
}

// Pattern is who sends what to which other rank in an iteration.
type Pattern uint8

// The patterns. Ring, Tree and Hierarchical are ways to reduce data over all ranks.
const (
	NoTraffic Pattern = iota
	Ring
	Tree
	Hierarchical // reduced inside each node first, then in rings over the nodes, one for each rail
	AllToAll
	Pipeline        // each stage sends to the next, and back
	ParameterServer // the first node collects and distributes
)

// Patterns are the names of the patterns.
var Patterns = []string{"none", "ring", "tree", "hierarchical", "all-to-all", "pipeline", "parameter-server"}

// Traffic is what a job does in one iteration: it computes, and it transmits.
type Traffic struct {
	Pattern Pattern `json:"pattern,omitempty"`
	// bytes that each rank has to reduce, to send to all others together (AllToAll), or to hand to the next stage
	// (Pipeline)
	Bytes   int64         `json:"bytes,omitempty"`
	Compute time.Duration `json:"compute,omitempty"` // computing time
	Overlap Milli         `json:"overlap,omitempty"` // part of the computing time during which it already transmits, in thousandths
}

// Treatment is how the traffic of a running job is treated by the network. The zero value: as any other traffic.
type Treatment struct {
	Class int `json:"class,omitempty"` // 1 is the most urgent; 0: none
	// Path is the path of each of its parts of traffic, as an index of the paths of least hops; empty: as the
	// switches' hash of addresses has it
	Path []uint8 `json:"path,omitempty"`
	// Spread is over how many paths each part is divided, by as many connections; 0 or 1: one
	Spread int `json:"spread,omitempty"`
	// Its iterations begin Shift after multiples of Period (since the Unix epoch); Period 0: whenever
	Shift  time.Duration `json:"shift,omitempty"`
	Period time.Duration `json:"period,omitempty"`
}
