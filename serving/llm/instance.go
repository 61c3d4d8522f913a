package llm

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Sequence is a request on an instance.
type Sequence struct {
	ID      int64
	Arrived cluster.Time
	First   cluster.Time // of its first token; 0: none yet
	Last    cluster.Time // of its last token so far
	Prompt  int32
	Output  int32 // tokens that it will have; the instance does not look at it before they are there

	later     int32 // tokens of the answer that another instance makes (Head)
	computed  int32 // tokens with keys and values
	generated int32
	blocks    int32
	chunk     int32 // of the batch that it is in
	slot      uint8 // of that batch; 0: it is in none
	brought   bool  // its prompt's keys and values come from there (Tail)
}

// ready is the tokens whose keys and values come from another instance.
func (s *Sequence) ready() int32 {
	if s.brought {
		return s.Prompt
	}
	return 0
}

// Head is a request of which an instance makes the first token only (prefill).
func Head(s Sequence) Sequence {
	s.later, s.Output = s.Output-1, 1
	return s
}

// Tail is what is left of a request whose first token another instance has made: it brings its prompt's keys and values
// along (decode). ok: there is anything left.
func (s *Sequence) Tail() (rest Sequence, ok bool) {
	return Sequence{ID: s.ID, Arrived: s.Arrived, First: s.First, Last: s.Last, Prompt: s.Prompt, Output: 1 + s.later,
		brought: true, generated: 1}, s.later > 0
}

// Observer is told of what an instance does.
type Observer interface {
	// Token is called for a token that does not follow one of the step before: the first, or one after a preemption.
	Token(s *Sequence, now cluster.Time)
	// Tokens is called for tokens of sequences that had one in the step before: how many, and the time between.
	Tokens(n int, gap time.Duration)
	// Done is called for a sequence with all of its tokens.
	Done(s *Sequence)
}

// Instance is one copy of a model. Each of its stages computes a batch at a time, and every batch passes all stages in
// order, so that as many batches are computed at once as there are stages. A sequence is in one batch at a time, and
// gets its token when that has passed the last stage; what arrives meanwhile waits until the first stage is free.
type Instance struct {
	engine  Engine
	takes   Timer
	see     Observer
	waiting []Sequence // the first at head
	head    int
	running []Sequence     // in the order of admission
	free    int32          // blocks
	coming  int32          // blocks that Expect has set aside
	flight  []batch        // what the stages compute, the first to end first
	until   []cluster.Time // by stage: it computes what was begun
	end     cluster.Time
	took    time.Duration // a stage for the step that was begun last
	last    cluster.Time  // the end of the step before
	step    Step
	slot    uint8 // of the next step: batches end in the order in which they began, so one is free

	Steps       int64
	Preemptions int64
	MostBlocks  int32
}

// batch is a step that the stages compute.
type batch struct {
	slot  uint8
	takes time.Duration // on each stage
	end   cluster.Time  // on the last
}

// NewInstance makes an instance of an engine that Check accepts. The timer says how long a stage takes for a step.
func NewInstance(e Engine, t Timer, see Observer) *Instance {
	return &Instance{engine: e, takes: t, see: see, free: int32(e.Blocks), end: cluster.Never, slot: 1,
		until: make([]cluster.Time, e.stages())}
}

// Fits reports whether a request can ever be computed: the KV memory is as large as its prompt and its answer.
func (x *Instance) Fits(prompt, output int32) bool {
	return blocksOf(prompt+output) <= int32(x.engine.Blocks)
}

func blocksOf(tokens int32) int32 { return (tokens + BlockTokens - 1) / BlockTokens }

// End is when the next step ends, or the first stage is free for another; cluster.Never: nothing is computed. Then
// Finish is called, and Begin.
func (x *Instance) End() cluster.Time { return x.end }

// ends sets that; again: another step may begin as soon as the first stage is free.
func (x *Instance) ends(again bool) {
	x.end = cluster.Never
	if len(x.flight) > 0 {
		x.end = x.flight[0].end
	}
	if again && len(x.flight) < len(x.until) {
		x.end = min(x.end, x.until[0])
	}
}

// Waiting and Running are how many sequences wait and run; Used is the part of the KV memory in use.
func (x *Instance) Waiting() int { return len(x.waiting) - x.head }

// Running is how many sequences run.
func (x *Instance) Running() int { return len(x.running) }

// Used is the part of the KV memory that is in use.
func (x *Instance) Used() float64 { return 1 - float64(x.free)/float64(x.engine.Blocks) }

// Hold keeps the blocks of a sequence that is done, since another instance still has to fetch its keys and values. It
// returns how many, for Release.
func (x *Instance) Hold(s *Sequence) int32 {
	x.free -= s.blocks
	return s.blocks
}

// Release frees blocks that were held.
func (x *Instance) Release(blocks int32) { x.free += blocks }

// Room reports whether there are blocks for a request whose prompt another instance has computed, beside those that
// wait and those that are expected.
func (x *Instance) Room(s *Sequence) bool {
	want, left := blocksOf(s.ready()+1), x.free-x.coming
	if len(x.running) == 0 && x.Waiting() == 0 && x.coming == 0 {
		return want <= left
	}
	for i := x.head; i < len(x.waiting); i++ {
		left -= blocksOf(x.waiting[i].Prompt + x.waiting[i].generated)
	}
	return want <= left-int32(x.engine.Watermark)
}

// Expect sets blocks aside for such a request while its keys and values are on their way, until Arrived.
func (x *Instance) Expect(s *Sequence) { x.coming += blocksOf(s.ready() + 1) }

// Arrived ends that.
func (x *Instance) Arrived(s *Sequence) { x.coming -= blocksOf(s.ready() + 1) }

// Left is how long the sequences that are there take if every stage takes as long for a step as for the last one that
// was begun: a token passes all stages, and of prompts each stage computes others.
func (x *Instance) Left() time.Duration {
	steps, prompts := int32(0), int32(0)
	for i := range x.running {
		s := &x.running[i]
		steps = max(steps, s.Output-s.generated)
		prompts += max(0, s.Prompt-s.computed)
	}
	for i := x.head; i < len(x.waiting); i++ {
		steps = max(steps, x.waiting[i].Output-x.waiting[i].generated)
		prompts += x.waiting[i].Prompt - x.waiting[i].ready()
	}
	return time.Duration(steps*int32(len(x.until))+prompts/int32(x.engine.Tokens)) * x.took
}

// Add queues a request that Fits accepts. An instance whose first stage is free begins a step with Begin.
func (x *Instance) Add(s Sequence) { x.waiting = append(x.waiting, s) }

// Begin begins a step at an instant if the first stage is free and there is anything to do.
func (x *Instance) Begin(now cluster.Time) {
	if len(x.flight) == len(x.until) {
		return
	}
	if x.until[0] > now {
		x.ends(true)
		return
	}
	x.step = Step{}
	if x.engine.Whole {
		x.wholePrompts()
	} else {
		x.chunks()
	}
	if x.step.Tokens > 0 {
		x.begin(now)
	}
	x.ends(x.step.Tokens > 0)
}

// begin has the stages compute the step that is planned.
func (x *Instance) begin(now cluster.Time) {
	x.took = x.takes(&x.step)
	end := now
	for i, until := range x.until {
		end = max(end, until).Add(x.took)
		x.until[i] = end
	}
	x.flight = append(x.flight, batch{x.slot, x.took, end})
	x.slot = 1 + x.slot%uint8(len(x.until))
	x.Steps++
	x.MostBlocks = max(x.MostBlocks, int32(x.engine.Blocks)-x.free)
}

// most is how many of the running sequences are in a step at most, so that there are as many for each stage.
func (x *Instance) most() int { return (len(x.running) + len(x.until) - 1) / len(x.until) }

// chunks plans a step of chunked prefill: every running sequence gets its next token, or as much of its prompt as the
// budget allows, then waiting ones are admitted (Sarathi-Serve, OSDI 2024; vLLM's scheduler).
func (x *Instance) chunks() {
	budget, most := int32(x.engine.Tokens), x.most()
	short := false
	for i := 0; i < len(x.running) && most > 0; i++ {
		s := &x.running[i]
		if s.slot > 0 {
			continue
		}
		s.chunk = min(s.Prompt+s.generated-s.computed, budget)
		if s.chunk == 0 {
			continue
		}
		want := blocksOf(s.computed+s.chunk) - s.blocks
		if want > x.free {
			short = true
			if !x.makeRoom(i, want) {
				break
			}
		}
		x.take(s, want)
		budget -= s.chunk
		most--
	}
	for !short && budget > 0 && x.Waiting() > 0 && len(x.running) < x.engine.Sequences {
		s := &x.waiting[x.head]
		chunk := min(s.Prompt+s.generated-s.ready(), budget)
		if !x.admit(chunk) {
			break
		}
		budget -= chunk
	}
}

// wholePrompts plans a step of waiting prompts alone, as many as fit, or else one of the next token of all.
func (x *Instance) wholePrompts() {
	budget := int32(x.engine.Tokens)
	for x.Waiting() > 0 && len(x.running) < x.engine.Sequences {
		s := &x.waiting[x.head]
		chunk := s.Prompt + s.generated - s.ready()
		if chunk > budget && x.step.Tokens > 0 || !x.admit(chunk) {
			break
		}
		budget -= min(budget, chunk)
	}
	if x.step.Tokens > 0 {
		return
	}
	most := x.most()
	for i := 0; i < len(x.running) && most > 0; i++ {
		s := &x.running[i]
		if s.slot > 0 {
			continue
		}
		s.chunk = 1
		want := blocksOf(s.computed+1) - s.blocks
		if want > x.free && !x.makeRoom(i, want) {
			break
		}
		x.take(s, want)
		most--
	}
}

// makeRoom frees blocks for a running sequence: those that were admitted last go back to the queue, but none that a
// stage computes. ok: they are free. Else it went back itself, or it waits for later ones that are computed.
func (x *Instance) makeRoom(i int, want int32) (ok bool) {
	for want > x.free {
		last := len(x.running) - 1
		for last > i && x.running[last].slot > 0 {
			last--
		}
		if last == i && i < len(x.running)-1 {
			return false
		}
		if x.preempt(last); last == i {
			return false
		}
	}
	return true
}

// take gives a sequence blocks for its chunk, and counts that in the step.
func (x *Instance) take(s *Sequence, blocks int32) {
	x.free -= blocks
	s.blocks += blocks
	s.slot = x.slot
	x.step.Add(int64(s.chunk), int64(s.computed))
}

// admit moves the first waiting sequence to those that run if there are blocks for its first chunk.
func (x *Instance) admit(chunk int32) bool {
	s := &x.waiting[x.head]
	want := blocksOf(s.ready() + chunk)
	if want > x.free-int32(x.engine.Watermark) && (len(x.running) > 0 || want > x.free) {
		return false
	}
	s.chunk, s.computed = chunk, s.ready()
	x.running = append(x.running, *s)
	x.take(&x.running[len(x.running)-1], want)
	if x.head++; x.head > 64 && x.head*2 > len(x.waiting) {
		x.waiting = slices.Delete(x.waiting, 0, x.head)
		x.head = 0
	}
	return true
}

// preempt puts a running sequence back to the front of the queue; it is computed again from its beginning.
func (x *Instance) preempt(i int) {
	s := x.running[i]
	x.running = slices.Delete(x.running, i, i+1)
	x.free += s.blocks
	s.blocks, s.computed, s.chunk, s.brought = 0, 0, 0, false
	if x.head > 0 {
		x.head--
		x.waiting[x.head] = s
	} else {
		x.waiting = slices.Insert(x.waiting, 0, s)
	}
	x.Preemptions++
}

// Finish ends the step that ends now, if one does, and hands out its tokens. It returns how long each stage computed
// it; 0: none ends yet.
func (x *Instance) Finish() time.Duration {
	now := x.end
	if len(x.flight) == 0 || x.flight[0].end > now {
		return 0
	}
	slot, took := x.flight[0].slot, x.flight[0].takes
	x.flight = append(x.flight[:0], x.flight[1:]...)
	if len(x.until) > 1 {
		x.last = x.latest(slot)
	}
	running, last, follow, kept := x.running, x.last, 0, 0
	for i := range running {
		if kept < i {
			running[kept] = running[i]
		}
		s := &running[kept]
		kept++
		if s.slot != slot {
			continue
		}
		s.slot = 0
		s.computed += s.chunk
		if s.computed < s.Prompt+s.generated {
			continue
		}
		s.generated++
		if s.Last == last && s.First > 0 {
			follow++
		} else {
			x.see.Token(s, now)
			if s.First == 0 {
				s.First = now
			}
		}
		s.Last = now
		if s.generated == s.Output {
			x.free += s.blocks
			x.see.Done(s)
			kept--
		}
	}
	if follow > 0 {
		x.see.Tokens(follow, now.Sub(last))
	}
	x.running, x.last = running[:kept], now
	x.ends(true)
	return took
}

// latest is the last token of any sequence of a batch: of most, since they were together in the one before.
func (x *Instance) latest(slot uint8) (last cluster.Time) {
	for i := range x.running {
		if s := &x.running[i]; s.slot == slot {
			last = max(last, s.Last)
		}
	}
	return last
}

// Clear takes all sequences away, as when the instance dies, and returns how many there were.
func (x *Instance) Clear() int {
	n := len(x.running) + x.Waiting()
	x.running, x.waiting, x.head, x.end, x.free = nil, nil, 0, cluster.Never, int32(x.engine.Blocks)
	x.coming, x.flight = 0, nil
	clear(x.until)
	return n
}
