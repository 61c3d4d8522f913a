package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
)

const (
	progressAfter = 2 * time.Second        // shorter work shows no bar
	progressEvery = 100 * time.Millisecond // between two draws
	progressCells = 24
	progressWidth = 79 // a line that no common terminal wraps
)

// Progress is a bar on a terminal for work that takes longer than two seconds.
// It may be used from several goroutines.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	label string
	clock func() time.Duration
	own   *Part
	parts []*Part
	note  string
	begun time.Duration
	drawn time.Duration
	shown bool
	done  bool
}

// Part is one of several pieces of work that share a bar.
type Part struct {
	p     *Progress
	total int
	at    int
}

// NewProgress returns a bar over total pieces of work, drawn on w if that is a
// terminal. clock is a monotonic wall clock from any origin. Nothing is drawn
// in the first two seconds.
func NewProgress(w io.Writer, isTTY bool, total int, label string, clock func() time.Duration) *Progress {
	p := &Progress{w: w, tty: isTTY, label: clean(label), clock: clock}
	p.own = &Part{p: p, total: total}
	p.parts = []*Part{p.own}
	if clock == nil {
		p.tty = false
	} else {
		p.begun = clock()
	}
	return p
}

// Part adds total pieces of work to the bar, counted separately, for parallel runs that share it.
// Their sum is drawn.
func (p *Progress) Part(total int) *Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &Part{p: p, total: total}
	p.parts = append(p.parts, q)
	return q
}

// Update sets the number of completed pieces. A count below an earlier one arrived late and is
// ignored. The note, if any, follows the bar.
func (p *Progress) Update(done int, note string) { p.own.Update(done, note) }

// Update sets the number of completed pieces of the part.
func (q *Part) Update(done int, note string) {
	p := q.p
	p.mu.Lock()
	defer p.mu.Unlock()
	q.at = max(q.at, min(done, q.total))
	p.note = note
	if !p.tty || p.done {
		return
	}
	now := p.clock()
	if now-p.begun < progressAfter || p.shown && now-p.drawn < progressEvery {
		return
	}
	p.shown, p.drawn = true, now
	fmt.Fprint(p.w, "\r\x1b[K"+p.line(now-p.begun))
}

// Done erases the bar.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && !p.done {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.done = true
}

func (p *Progress) line(gone time.Duration) string {
	at, total := 0, 0
	for _, q := range p.parts {
		at, total = at+q.at, total+q.total
	}
	share := 0.0
	if total > 0 {
		share = float64(at) / float64(total)
	}
	full := int(share * progressCells)
	s := fmt.Sprintf("%s %s%s %3.0f%%", clip(p.label, 24), strings.Repeat("█", full),
		strings.Repeat("░", progressCells-full), share*100)
	if share > 0 && share < 1 {
		s += "  " + strings.Replace(humanSeconds(math.Round(gone.Seconds()*(1-share)/share)), ".0s", "s", 1) + " left"
	}
	if p.note != "" {
		s += "  " + clean(p.note)
	}
	if r := []rune(s); len(r) > progressWidth {
		s = string(r[:progressWidth-1]) + "…"
	}
	return s
}
