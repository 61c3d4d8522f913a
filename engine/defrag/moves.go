package defrag

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Move is one job that goes elsewhere. Its cost is what its GPUs do not compute
// meanwhile: GPUs x (the longer of Stop and Wait + Restart + Lost). A share, or a slice,
// counts for its part of a GPU.
type Move struct {
	Job  cluster.JobID `json:"job"`
	Name string        `json:"name,omitempty"`
	GPUs int           `json:"gpus"`
	Part string        `json:"part,omitempty"` // what it holds of GPUs, where that is shares or slices
	// nodes; with their GPUs where they have islands, or it holds parts: GPU@first memory slice
	From    []string        `json:"from"`
	To      []string        `json:"to"`              // nodes
	After   []cluster.JobID `json:"after,omitempty"` // the jobs that have part of that, and leave it for it
	Stop    time.Duration   `json:"stop"`            // until it has left: what a checkpoint takes
	Wait    time.Duration   `json:"wait,omitempty"`  // until those have left
	Restart time.Duration   `json:"restart"`         // until it computes again
	// work since its last checkpoint, where it writes none when it leaves
	Lost time.Duration `json:"lost"`
	Cost time.Duration `json:"cost"` // GPU time
	// it goes on until another job has come in its place, at most for Stop
	Replaced bool `json:"replaced,omitempty"`
}

// Has is what the job holds of GPUs, in a few words.
func (m *Move) Has() string { return partOr(m.Part, m.GPUs) }

// Needs is what the job asks for of GPUs, in a few words.
func (m *Moves) Needs() string { return partOr(m.Part, m.GPUs) }

func partOr(part string, gpus int) string { return cmp.Or(part, fmt.Sprintf("%d GPUs", gpus)) }

// Moves is what would let one waiting job start, or empty a node, or why nothing does.
type Moves struct {
	Job     cluster.JobID `json:"job"` // NoJob: a node is emptied
	Name    string        `json:"name,omitempty"`
	Empties string        `json:"empties,omitempty"` // the node
	GPUs    int           `json:"gpus"`              // the job's, or the node's
	Part    string        `json:"part,omitempty"`    // what the job asks for, where that is a share or a slice
	Milli   cluster.Milli `json:"milli,omitempty"`   // of GPUs, in thousandths
	Moves   []Move        `json:"moves,omitempty"`
	On      []string      `json:"on,omitempty"` // nodes where the job then runs
	Cost    time.Duration `json:"cost"`         // GPU time of all moves
	Without cluster.Time  `json:"without"`      // its expected start without moves; Never: none is in sight
	Start   cluster.Time  `json:"start"`        // its start if they move now
	Saved   time.Duration `json:"saved"`        // the wait that this saves, at most the horizon
	Weight  int           `json:"weight"`       // of its tier, in thousandths
	Benefit time.Duration `json:"benefit"`      // GPU time: Saved x Milli x Weight; of an emptied node see Compact
	Worth   bool          `json:"worth"`        // the benefit exceeds the cost
	Made    bool          `json:"made,omitempty"`
	Text    string        `json:"text,omitempty"` // why nothing is moved
}

// weightOf is what a GPU hour that a job of the tier waits less counts for against one
// that is lost, in thousandths: a design decision, each tier twice the one below.
func weightOf(t cluster.Tier) int { return 2000 >> t }

// times multiplies, up to the largest duration that there is.
func times(d time.Duration, n int64) time.Duration {
	if n > 0 && d > cluster.MaxDuration/time.Duration(n) {
		return cluster.MaxDuration
	}
	return d * time.Duration(n)
}

// gpusTime is what GPUs, in thousandths, do for so long.
func gpusTime(d time.Duration, milli cluster.Milli) time.Duration {
	whole := times(d, milli/cluster.Whole)
	return whole + min(cluster.MaxDuration-whole, d/time.Duration(cluster.Whole)*time.Duration(milli%cluster.Whole))
}

func gpuTime(d time.Duration) string { return cluster.FormatDuration(d.Round(time.Second)) }

// Moves is what is written down of moves for a job before they are looked for.
func (f *Finder) Moves(j *job.State, s *shape.Shape) Moves {
	m := Moves{Job: j.Spec.ID, Name: j.Spec.Name, GPUs: s.GPUs, Milli: f.world.Shapes.MilliOf(s, int(s.Min)),
		Without: cluster.Never, Start: cluster.Never, Weight: weightOf(j.Spec.Tier)}
	if s.Partly() {
		m.Part = words.Asks(s)
	}
	return m
}

// Weigh writes down which jobs go where, what that costs, and what it saves of a wait, if the job would start without
// it at that time: at most the horizon.
func (f *Finder) Weigh(m *Moves, way *Relocation, without cluster.Time, horizon time.Duration) {
	m.On, m.Start = f.nodesOf(way.Allocs), f.world.Now
	for i := range way.Movers {
		x := &way.Movers[i]
		m.Moves = append(m.Moves, f.moveOf(x))
		m.Moves[i].After, m.Moves[i].Wait = way.behind(x), x.wait
		m.Cost += x.cost
		m.Start = max(m.Start, f.world.Now.Add(x.stop))
	}
	m.Without, m.Saved = without, horizon
	if without != cluster.Never {
		m.Saved = min(m.Saved, max(0, without.Sub(m.Start)))
	}
	m.Benefit = times(gpusTime(m.Saved, m.Milli), int64(m.Weight)) / 1000
	if m.weigh(); m.Saved == 0 {
		m.Text = "not worth it: it starts as soon without moves"
	}
}

// weigh compares the benefit with the cost.
func (m *Moves) weigh() {
	if m.Worth = m.Benefit > m.Cost; !m.Worth {
		m.Text = fmt.Sprintf("not worth it: %s of GPU time are lost for %s", gpuTime(m.Cost), gpuTime(m.Benefit))
	}
}

// moveOf writes down one move.
func (f *Finder) moveOf(x *Mover) Move {
	m := Move{Job: x.Job.Spec.ID, Name: x.Job.Spec.Name, GPUs: int(x.Job.Devices), From: f.nodesOf(x.Job.Allocs),
		To:   f.nodesOf(x.Dest),
		Stop: x.stop, Restart: x.Job.Spec.Checkpoint.Restart, Lost: x.lost, Cost: x.cost,
		Replaced: x.How == job.Replace}
	if holdsParts(x.Job) {
		m.Part = words.Holds(f.st, x.Job.Allocs)
	}
	return m
}

// nodesOf lists the names of the nodes of allocations, each once, and the GPUs where a
// node has islands or of which only parts are meant: a job may move from one to the
// other, or from one memory slice to another (GPU@slice).
func (f *Finder) nodesOf(allocs []inventory.Alloc) (names []string) {
	for i := range allocs {
		n := &f.st.Nodes()[allocs[i].Node]
		name := n.Spec().Name
		if a := &allocs[i]; a.Slots != 0 {
			name += fmt.Sprintf(":%d@%d", bits.TrailingZeros64(a.GPUs), bits.TrailingZeros8(a.Slots))
		} else if n.Split() || a.Share > 0 {
			var list []string
			for m := allocs[i].GPUs; m != 0; m &= m - 1 {
				list = append(list, strconv.Itoa(bits.TrailingZeros64(m)))
			}
			name += ":" + strings.Join(list, ",")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// String is the moves in one line.
func (m *Moves) String() string {
	if len(m.Moves) == 0 {
		return m.Text
	}
	var list []string
	for i := range m.Moves {
		x := &m.Moves[i]
		after := ""
		for k, id := range x.After {
			after += fmt.Sprintf("%s %d", []string{", after job", " and"}[min(k, 1)], id)
		}
		list = append(list, fmt.Sprintf("job %d (%s) from %s to %s%s", x.Job, cmp.Or(x.Part, words.GPUs(x.GPUs)),
			strings.Join(x.From, ","), strings.Join(x.To, ","), after))
	}
	text := fmt.Sprintf("%s; costs %s of GPU time", strings.Join(list, ", "), gpuTime(m.Cost))
	switch {
	case m.Text != "":
		return text + "; " + m.Text
	case m.Empties != "":
		return text + fmt.Sprintf("; empties %s: gains %s", m.Empties, gpuTime(m.Benefit))
	}
	return text + fmt.Sprintf("; saves a wait of %s", gpuTime(m.Saved))
}

// withoutSpare leaves movers out, the dearest first, without whose departure there is room as well.
func withoutSpare(movers []Mover, room func([]Mover) bool) []Mover {
	list := slices.Clone(movers)
	slices.SortStableFunc(list, func(a, b Mover) int { return int(min(1, max(-1, b.cost-a.cost))) })
	for i := 0; i < len(list); {
		if rest := slices.Delete(slices.Clone(list), i, i+1); room(rest) {
			list = rest
		} else {
			i++
		}
	}
	return list
}
