package engine

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
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Defragmentation: enough GPUs are free for a waiting gang, but not
// together. Running jobs are moved, so that they are. A move is a preemption
// whose victim has its next devices before it is told to leave: they are in the
// books for it (State.dest), so that nothing can come between. The gang has
// its own likewise, and starts when those who leave them have left.

// Defrag says whether jobs are moved, and how many.
type Defrag struct {
	// Auto: moves that are worth it are made by themselves; else only those that
	// somebody asks for (event Defragment).
	Auto bool `json:"auto,omitempty"`
	// Compact: with Auto, nodes are emptied, too, while nobody waits for room.
	Compact Compact `json:"compact,omitempty"`
	// Moves bounds how many jobs are on their way at once; 0: 4. Jobs with shares or slices count
	// for their part of a GPU.
	Moves int `json:"moves,omitempty"`
	// PerHour bounds how often one job is moved within an hour; 0: 2.
	PerHour int `json:"per_hour,omitempty"`
	// Chain bounds the links of a chain of moves, in which each goes where the next one
	// was; 0: 3, which is enough to put together any part of a node of 8 GPUs where sizes
	// are powers of two; 1: nobody moves for one that moves.
	Chain int `json:"chain,omitempty"`
	// Every is how often moves are looked for where Auto is set; 0: 5 minutes.
	Every time.Duration `json:"every,omitempty"`
	// Horizon bounds the wait that moves are believed to save, and is what they
	// save where no start is in sight without them; 0: 24 hours.
	Horizon time.Duration `json:"horizon,omitempty"`
	// Protected are times in which nobody is moved; nil: there are none.
	Protected *cluster.Weekly `json:"protected,omitempty"`
}

// ParseDefrag reads how far defragmentation goes: off, plan (moves are made for whom
// somebody asks), auto, or auto and nodes are emptied, for one gain or the other: compact,
// compact-nodes.
func ParseDefrag(s string) (*Defrag, error) {
	v, err := job.ParseName("way to defragment", s, defragNames)
	if err != nil || v == 0 {
		return nil, err
	}
	return &Defrag{Auto: v >= 2, Compact: Compact(max(2, v) - 2)}, nil
}

// String is what ParseDefrag reads.
func (d *Defrag) String() string {
	switch {
	case d == nil:
		return defragNames[0]
	case d.Auto:
		return job.NameOf(2+uint8(d.Compact), defragNames)
	}
	return defragNames[1]
}

// withDefaults fills in what is not stated.
func (d Defrag) withDefaults() Defrag {
	d.Moves, d.PerHour, d.Chain = cmp.Or(d.Moves, 4), cmp.Or(d.PerHour, 2), cmp.Or(d.Chain, 3)
	d.Every, d.Horizon = cmp.Or(d.Every, 5*time.Minute), cmp.Or(d.Horizon, 24*time.Hour)
	return d
}

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
	After   []cluster.JobID `json:"after,omitempty"` // who has part of that, and leaves it for it
	Stop    time.Duration   `json:"stop"`            // until it has left: what a checkpoint takes
	Wait    time.Duration   `json:"wait,omitempty"`  // until those have left
	Restart time.Duration   `json:"restart"`         // until it computes again
	// work since its last checkpoint, where it writes none when it leaves
	Lost time.Duration `json:"lost"`
	Cost time.Duration `json:"cost"` // GPU time
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
	Without cluster.Time  `json:"without"`      // its expected start if nobody moves; Never: none is in sight
	Start   cluster.Time  `json:"start"`        // its start if they move now
	Saved   time.Duration `json:"saved"`        // the wait that this saves, at most the horizon
	Weight  int           `json:"weight"`       // of its tier, in thousandths
	Benefit time.Duration `json:"benefit"`      // GPU time: Saved x Milli x Weight; of an emptied node see Compact
	Worth   bool          `json:"worth"`        // the benefit exceeds the cost
	Made    bool          `json:"made,omitempty"`
	Text    string        `json:"text,omitempty"` // why nothing is moved
}

// defrag is where the engine is in looking for moves.
type defrag struct {
	Defrag
	on         bool
	round      cluster.Time // the last one, of Every, in which moves were looked for
	due        bool         // this pass looks for moves
	look       bool         // ... and makes none
	only       cluster.JobID
	compacting Compact // this pass empties nodes
	tried      int
	seen       []Moves         // what the last pass that looked found
	movers     []cluster.JobID // who leaves for devices that are booked for it, by number
}

// keepMoves is how long it is remembered that a job was moved.
const keepMoves = time.Hour

// mostGangs bounds for how many waiting jobs moves are looked for in one pass.
const mostGangs = 16

// defragDue says whether the pass of this step looks for moves.
func (e *Engine) defragDue() {
	d := &e.defrag
	if p := cluster.Time(d.Every); e.defragRounds() && e.w.Now/p != d.round && e.protectedNow() == "" {
		d.round, d.due, d.only, d.compacting = e.w.Now/p, true, cluster.NoJob, d.Compact
	}
	if d.due || d.compacting != NoCompact {
		d.tried, d.seen, e.fresh = 0, nil, true
	}
}

// defragRounds reports whether moves are looked for again and again: while somebody waits,
// or runs on a node that could be emptied.
func (e *Engine) defragRounds() bool {
	d := &e.defrag
	return d.on && d.Auto && (e.pending > 0 || d.Compact != NoCompact && e.live > 0)
}

// defragWake is when the engine wants to be called to look for moves.
func (e *Engine) defragWake() cluster.Time {
	p := cluster.Time(e.defrag.Every)
	switch {
	case !e.defragRounds():
		return cluster.Never
	case e.protectedNow() != "":
		return e.unprotectedFrom(e.w.Now) // not only in the round after
	}
	return e.unprotectedFrom((e.w.Now/p + 1) * p)
}

// askMoves has the pass of this step look for moves for one job, or for all, or for
// such as empty nodes.
func (e *Engine) askMoves(ev *Event) {
	switch d := &e.defrag; {
	case !d.on:
	case ev.Compact != NoCompact:
		d.compacting = ev.Compact
	default:
		d.due, d.only = true, ev.Job
	}
}

// Moved is what the last step that looked for moves found, in the order of the
// line. It is valid until the next step.
func (e *Engine) Moved() []Moves { return e.defrag.seen }

// LookForMoves says which moves would let waiting jobs start, the one, or with NoJob
// those that a pass looks at. The engine is another when it returns: the caller
// restored it for this.
func (e *Engine) LookForMoves(job cluster.JobID) []Moves {
	d := &e.defrag
	if !d.on {
		d.Defrag, d.on = d.withDefaults(), true
	}
	d.due, d.look, d.only, d.tried, d.seen = true, true, job, 0, nil
	e.pass()
	d.due, d.look = false, false
	if job != cluster.NoJob && len(d.seen) == 0 {
		d.seen = []Moves{e.notLooked(job)}
	}
	return d.seen
}

// LookForEmptying says which moves would empty nodes, as LookForMoves does for waiting
// jobs.
func (e *Engine) LookForEmptying(by Compact) []Moves {
	d := &e.defrag
	if !d.on {
		d.Defrag, d.on = d.withDefaults(), true
	}
	d.look, d.compacting, d.seen = true, by, nil
	e.pass()
	d.look, d.compacting = false, NoCompact
	return d.seen
}

// notLooked says why no moves were looked for.
func (e *Engine) notLooked(id cluster.JobID) Moves {
	m := Moves{Job: id, Without: cluster.Never, Start: cluster.Never, Text: "there is no such job"}
	j := e.job(id)
	if j == nil {
		return m
	}
	m.Name, m.GPUs, m.Text = j.Spec.Name, int(j.Devices), "no moves are looked for: it is "+j.State.String()
	switch {
	case j.State != job.Pending:
	case !j.Eligible:
		m.Text = "no move would help: " + e.parkedText(j)
	case e.overQuota(j, e.leastMilli(j)).code != notRefused:
		r := e.overQuota(j, e.leastMilli(j))
		m.Text = "no move would help: " + e.refusalText(&r)
	default:
		m.Text = "no moves are looked for: others come before it, or it waits for more than room"
	}
	return m
}

// moveFor looks for moves that let a job start that has no room, and makes them
// if they are worth it.
func (e *Engine) moveFor(r placement.Request, j *job.State) bool {
	d := &e.defrag
	if !d.due || d.only != cluster.NoJob && d.only != j.Spec.ID || d.tried >= mostGangs {
		return false
	}
	d.tried++
	m, way := e.planMoves(r, j)
	made := way != nil && m.Worth && !d.look
	if made {
		m.Made = true
		e.relocate(j, way)
	}
	d.seen = append(d.seen, m)
	return made
}

// planMoves finds the cheapest moves for a job, and whether they are worth it.
func (e *Engine) planMoves(r placement.Request, j *job.State) (Moves, *relocation) {
	s := e.shapes.At(j.Shape)
	m := Moves{Job: j.Spec.ID, Name: j.Spec.Name, GPUs: s.GPUs, Milli: e.shapes.MilliOf(s, int(s.Min)),
		Without: cluster.Never, Start: cluster.Never, Weight: weightOf(j.Spec.Tier)}
	if s.Partly() {
		m.Part = words.Asks(s)
	}
	if m.Text = e.unmoving(j, s); m.Text != "" {
		return m, nil
	}
	way, text := e.findMoves(r, j, s)
	if way == nil {
		m.Text = text
		return m, nil
	}
	e.describe(&m, way)
	if start, ok := e.foreseen(j); ok && start.at < e.w.Now.Add(cluster.MaxDuration/2) {
		m.Without = start.at
	}
	m.Saved = e.defrag.Horizon
	if m.Without != cluster.Never {
		m.Saved = min(m.Saved, max(0, m.Without.Sub(m.Start)))
	}
	m.Benefit = times(gpusTime(m.Saved, m.Milli), int64(m.Weight)) / 1000
	switch m.Worth = m.Benefit > m.Cost; {
	case m.Saved == 0:
		m.Text = "not worth it: it starts as soon without moves"
	case !m.Worth:
		m.Text = fmt.Sprintf("not worth it: %s of GPU time are lost for %s", gpuTime(m.Cost), gpuTime(m.Benefit))
	}
	e.spare(&m)
	return m, way
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

// unmoving says why moves cannot help the job; "": they may.
func (e *Engine) unmoving(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	if text := e.unmovable(); text != "" {
		return text
	}
	switch {
	case len(s.Sets) != 1 || r.GPUs == 0:
		return "jobs are moved for gangs of one kind of task with GPUs only"
	case shape.IsPart(r) && e.cfg.Unshared:
		return "jobs are moved for whole GPUs only: here somebody else chooses the GPU of shares and slices"
	case s.NoPreempt:
		return "it asks that nobody is stopped for it"
	case j.Home != nil:
		return "it is suspended, and goes on only where its memory is"
	}
	if shape.IsPart(r) {
		return ""
	}
	if have, parted := e.freeFor(s); have+parted < s.GPUs {
		text := fmt.Sprintf("no move would help: it needs %s, %d suitable ones are free", words.GPUs(s.GPUs), have)
		if parted > 0 {
			text += fmt.Sprintf(", and on %d are only shares and slices", parted)
		}
		return text
	}
	return ""
}

// unmovable says why nobody is moved at all; "": jobs may be.
func (e *Engine) unmovable() string {
	switch {
	case e.plans.planner != nil && !e.w.Traits.Anywhere:
		return "policy " + e.plans.planner.Name() + " plans where jobs run: nobody else moves them"
	case len(e.advance) > 0:
		return "there are advance reservations: jobs are not moved around them yet"
	}
	return ""
}

// freeFor is the free GPUs, and those on which only shares and slices are, of the model of
// which there are most of both. Where somebody else chooses the GPUs of these, none count.
func (e *Engine) freeFor(s *shape.Shape) (free, parted int) {
	for _, g := range s.StagesOf() {
		f, p := 0, 0
		for _, ci := range g.Classes {
			f += e.st.Classes()[ci].Free()
			if !e.cfg.Unshared {
				p += e.st.Parted(ci)
			}
		}
		if f+p > free+parted {
			free, parted = f, p
		}
	}
	return free, parted
}

// describe writes down who goes where, and what that costs.
func (e *Engine) describe(m *Moves, way *relocation) {
	m.On, m.Start = e.nodesOf(way.allocs), e.w.Now
	for i := range way.movers {
		x := &way.movers[i]
		m.Moves = append(m.Moves, e.moveOf(x))
		m.Moves[i].After, m.Moves[i].Wait = way.behind(x), x.wait
		m.Cost += x.cost
		m.Start = max(m.Start, e.w.Now.Add(x.stop))
	}
}

// moveOf writes down one move.
func (e *Engine) moveOf(x *mover) Move {
	m := Move{Job: x.j.Spec.ID, Name: x.j.Spec.Name, GPUs: int(x.j.Devices), From: e.nodesOf(x.j.Allocs),
		To:   e.nodesOf(x.dest),
		Stop: x.stop, Restart: x.j.Spec.Checkpoint.Restart, Lost: x.lost, Cost: x.cost}
	if x.parted() {
		m.Part = words.Holds(&e.st, x.j.Allocs)
	}
	return m
}

// nodesOf lists the names of the nodes of allocations, each once, and the GPUs where a
// node has islands or of which only parts are meant: somebody may move from one to the
// other, or from one memory slice to another (GPU@slice).
func (e *Engine) nodesOf(allocs []inventory.Alloc) (names []string) {
	for i := range allocs {
		n := &e.st.Nodes()[allocs[i].Node]
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
