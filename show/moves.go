package show

import (
	"cmp"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
)

// Moves lists moves that would let one waiting job start, or empty a node, or says why there are none.
type Moves struct {
	Job     int          `json:"job,omitempty" doc:"The waiting job; absent: a node is to be emptied"`
	Name    string       `json:"name,omitempty"`
	Empties string       `json:"empties,omitempty" doc:"The node that is emptied"`
	GPUs    int          `json:"gpus" doc:"What the job needs, or the node has"`
	Part    string       `json:"part,omitempty" doc:"Where the job needs a share or a slice: what it needs"`
	Milli   int64        `json:"milli,omitempty" doc:"What the job needs, in thousandths of a GPU"`
	Moves   []Move       `json:"moves,omitempty" doc:"The running jobs that would move"`
	On      []string     `json:"on,omitempty" doc:"Nodes where the waiting job then runs"`
	Cost    float64      `json:"cost" doc:"GPU-seconds that the moves lose together"`
	Without *time.Time   `json:"without,omitempty" doc:"Its expected start without moves; absent: none is in sight"`
	Start   *time.Time   `json:"start,omitempty" doc:"Its start if they move now"`
	Saved   ask.Duration `json:"saved" doc:"The wait that this saves, at most the horizon of the configuration"`
	Weight  float64      `json:"weight" doc:"The weight of an hour of wait saved against an hour of work lost, by its tier"`
	Benefit float64      `json:"benefit" doc:"GPU-seconds: the wait saved times GPUs, or the part of one, times weight; for an emptied node, of additional usable GPUs, or of GPUs on empty nodes, up to the horizon"`
	Worth   bool         `json:"worth" doc:"The benefit exceeds the cost"`
	Made    bool         `json:"made,omitempty" doc:"The moves were made"`
	Text    string       `json:"text,omitempty" doc:"Why nothing is moved"`
}

// Move is one running job that is moved.
type Move struct {
	Job     int          `json:"job"`
	Name    string       `json:"name,omitempty"`
	GPUs    int          `json:"gpus"`
	Part    string       `json:"part,omitempty" doc:"Where it has shares or slices: what it has"`
	From    []string     `json:"from" doc:"Nodes; of shares with the GPU (n1:0), of slices also with the first memory slice (n1:0@4)"`
	To      []string     `json:"to" doc:"Likewise; its GPUs there are booked before it stops"`
	After   []int        `json:"after,omitempty" doc:"Jobs that leave these GPUs for it: it starts there once they have left"`
	Stop    ask.Duration `json:"stop" doc:"Until it has left: what a checkpoint takes"`
	Wait    ask.Duration `json:"wait,omitempty" doc:"Until the jobs that leave for it have left"`
	Restart ask.Duration `json:"restart" doc:"Until it computes again"`
	Lost    ask.Duration `json:"lost" doc:"Work since its last checkpoint, if it writes none when it leaves"`
	Cost    float64      `json:"cost" doc:"GPU-seconds: its GPUs times the longer of stop and wait, the restart and what is lost"`
	// It is a replica of a service.
	Replaced bool `json:"replaced,omitempty" doc:"It goes on until another has come in its place, at most for stop"`
}

// Needs describes the GPUs that the job asks for.
func (m *Moves) Needs() string { return gpusOr(m.Part, m.GPUs) }

// Has describes the GPUs that the job holds.
func (m *Move) Has() string { return gpusOr(m.Part, m.GPUs) }

func gpusOr(part string, gpus int) string {
	return cmp.Or(part, fmt.Sprintf("%d GPUs", gpus))
}

// Verdict describes the outcome of the moves.
func (m *Moves) Verdict() string {
	switch {
	case m.Made && m.Empties != "":
		return "emptied"
	case m.Made:
		return "moved"
	case m.Worth && m.Empties != "":
		return "can be emptied"
	case m.Worth:
		return "moving would help"
	}
	return m.Text
}
