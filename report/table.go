package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// TableOptions describes the output medium.
type TableOptions struct {
	Width int  // columns of the terminal; 0: 80
	Color bool // whether ANSI bold and dim may be used
}

const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// WriteTable writes the figures of several runs side by side: figures as rows and policies as
// columns if that fits the width, otherwise a row per policy in as many blocks as necessary. The
// best value of a figure is marked.
func WriteTable(w io.Writer, sums []Summary, opt TableOptions) error {
	if len(sums) == 0 {
		return nil
	}
	if opt.Width <= 0 {
		opt.Width = 80
	}
	t := newTable(sums, opt)
	if !t.columns() {
		t.rows()
	}
	t.notes(sums)
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	opt   TableOptions
	figs  []figure
	names []string
	cells [][]string // figure, run
	best  [][]bool
	any   bool // some value is marked
	out   strings.Builder
}

func newTable(sums []Summary, opt TableOptions) *table {
	t := &table{opt: opt, figs: shown(figures(), sums), names: labels(sums)}
	for i := range t.figs {
		f := &t.figs[i]
		row := make([]string, len(sums))
		for k := range sums {
			row[k] = f.show(&sums[k])
		}
		b := best(f, sums)
		for _, v := range b {
			t.any = t.any || v
		}
		t.cells, t.best = append(t.cells, row), append(t.best, b)
	}
	return t
}

// columns formats figures as rows; it reports whether that fits.
func (t *table) columns() bool {
	label := 0
	for i := range t.figs {
		label = max(label, 2+width(t.figs[i].label))
	}
	wide := make([]int, len(t.names))
	total := label
	for k := range t.names {
		wide[k] = width(t.names[k])
		for i := range t.figs {
			wide[k] = max(wide[k], width(t.cells[i][k]))
		}
		total += wide[k] + 3 // two spaces and the mark
	}
	if total > t.opt.Width {
		if len(t.names) > 1 {
			return false
		}
		wide[0] = max(8, t.opt.Width-label-3)
	}
	t.line(pad("", label), func(b *strings.Builder) {
		for k, n := range t.names {
			b.WriteString("  " + left(clip(n, wide[k]), wide[k]) + " ")
		}
	})
	group := ""
	for i := range t.figs {
		f := &t.figs[i]
		if f.group != group {
			group = f.group
			t.out.WriteString(t.style(faint, group) + "\n")
		}
		t.line(pad("  "+f.label, label), func(b *strings.Builder) {
			for k := range t.names {
				b.WriteString("  " + t.cell(i, k, wide[k]))
			}
		})
	}
	return true
}

// block is a run of figures that share one stretch of the width.
type block struct {
	figs []int
	wide []int
}

// rows formats policies as rows, in blocks of whole groups where they fit.
func (t *table) rows() {
	name := width("policy")
	for _, n := range t.names {
		name = max(name, width(n))
	}
	name = min(name, max(16, t.opt.Width/3))
	for i, b := range t.blocks(t.opt.Width - name) {
		if i > 0 {
			t.out.WriteByte('\n')
		}
		t.heads(b, name)
		for k := range t.names {
			t.line(pad(clip(t.names[k], name), name), func(s *strings.Builder) {
				for c, f := range b.figs {
					s.WriteString(t.gap(b, c) + t.cell(f, k, b.wide[c]))
				}
			})
		}
	}
}

// gap separates groups.
func (t *table) gap(b block, c int) string {
	if c > 0 && t.figs[b.figs[c]].group == t.figs[b.figs[c-1]].group {
		return " "
	}
	return "  "
}

func (t *table) heads(b block, name int) {
	t.line(pad("", name), func(s *strings.Builder) {
		for c := 0; c < len(b.figs); {
			g, room := t.figs[b.figs[c]].group, 0
			s.WriteString("  ")
			for first := c; c < len(b.figs) && t.figs[b.figs[c]].group == g; c++ {
				room += b.wide[c] + 1
				if c > first {
					room++
				}
			}
			s.WriteString(t.style(faint, pad(clip(g, room), room)))
		}
	})
	t.line(pad("policy", name), func(s *strings.Builder) {
		for c, f := range b.figs {
			s.WriteString(t.gap(b, c) + left(t.figs[f].short, b.wide[c]) + " ")
		}
	})
}

// blocks breaks the figures at the width, between groups if possible.
func (t *table) blocks(room int) []block {
	var out []block
	var cur block
	used := 0
	for i := 0; i < len(t.figs); {
		var g block
		size := 0
		for j := i; j < len(t.figs) && t.figs[j].group == t.figs[i].group; j++ {
			w := width(t.figs[j].short)
			for _, c := range t.cells[j] {
				w = max(w, width(c))
			}
			g.figs, g.wide = append(g.figs, j), append(g.wide, w)
			size += w + 2
		}
		size++ // groups are two spaces apart
		i += len(g.figs)
		if used+size <= room {
			cur.figs, cur.wide, used = append(cur.figs, g.figs...), append(cur.wide, g.wide...), used+size
			continue
		}
		if len(cur.figs) > 0 {
			out = append(out, cur)
		}
		cur, used = block{}, 0
		for c := range g.figs {
			if used > 0 && used+g.wide[c]+3 > room {
				out = append(out, cur)
				cur, used = block{}, 0
			}
			cur.figs, cur.wide, used = append(cur.figs, g.figs[c]), append(cur.wide, g.wide[c]), used+g.wide[c]+2
		}
		used++
	}
	return append(out, cur)
}

// cell is a right-aligned value, followed by its mark.
func (t *table) cell(f, k, w int) string {
	v := t.cells[f][k]
	room := left("", w-width(v))
	if t.best[f][k] {
		return room + t.style(bold, v+"*")
	}
	return room + v + " "
}

func (t *table) style(on, s string) string {
	if !t.opt.Color || strings.TrimSpace(s) == "" {
		return s
	}
	return on + s + plain
}

func (t *table) line(head string, rest func(*strings.Builder)) {
	var b strings.Builder
	b.WriteString(head)
	rest(&b)
	t.out.WriteString(strings.TrimRight(b.String(), " ") + "\n")
}

// notes states what the figures leave out.
func (t *table) notes(sums []Summary) {
	t.out.WriteByte('\n')
	if t.any {
		t.wrap("* best of the policies" + fewer(sums))
	}
	t.setups("placer", sums, func(s *Summary) string { return s.Placer })
	t.setups("backfill", sums, func(s *Summary) string { return s.Backfill })
	t.setups("traffic policy", sums, func(s *Summary) string { return s.Traffic })
	t.setups("busiest links", sums, busiest)
	if text := unlike(sums); text != "" {
		t.wrap(text)
	}
	t.grouped(sums, note, func(text, runs string) { t.wrap(runs + ": " + text) })
}

// unlike warns of a comparison that differs in two ways: the order, and whether jobs may pass a
// blocked one.
func unlike(sums []Summary) string {
	strict, others := 0, 0
	for i := range sums {
		switch sums[i].Backfill {
		case "":
		case "none":
			strict++
		default:
			others++
		}
	}
	if strict == 0 || others == 0 {
		return ""
	}
	return "not alike: where there is no backfill nothing passes a blocked job, under the others jobs do; what is due to the order alone shows with the same backfill for all (--backfill easy)"
}

// fewer explains why a seemingly best value has no mark.
func fewer(sums []Summary) string {
	for i := range sums {
		if sums[i].Partial || !competes(&sums[i], sums) {
			return "; runs cut short, or that ended fewer jobs, do not compete"
		}
	}
	return ""
}

// grouped calls f for each text that of returns, with the runs that have it.
func (t *table) grouped(sums []Summary, of func(*Summary) string, f func(text, runs string)) {
	var texts []string
	runs := map[string][]string{}
	for i := range sums {
		v := of(&sums[i])
		if _, ok := runs[v]; !ok {
			texts = append(texts, v)
		}
		runs[v] = append(runs[v], t.names[i])
	}
	for _, v := range texts {
		names := strings.Join(runs[v], ", ")
		if len(sums) > 1 && len(runs[v]) == len(sums) {
			names = "all"
		} else if 2*len(runs[v]) > len(sums) && len(runs[v]) > 3 {
			names = "the others"
		}
		if v != "" {
			f(v, names)
		}
	}
}

// setups lists which runs had which placer or backfill.
func (t *table) setups(what string, sums []Summary, of func(*Summary) string) {
	var parts []string
	t.grouped(sums, of, func(text, runs string) {
		if len(sums) > 1 && runs != "all" {
			text += " (" + runs + ")"
		}
		parts = append(parts, clean(text))
	})
	if len(parts) > 0 {
		t.wrap(what + ": " + strings.Join(parts, ", "))
	}
}

// busiest names the links that carried most, in the mean over the run.
func busiest(s *Summary) string {
	var parts []string
	for _, l := range s.Links[:min(3, len(s.Links))] {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", l.Name, 100*l.Load))
	}
	return strings.Join(parts, " ")
}

// note describes what a run's figures do not show.
func note(s *Summary) string {
	var parts []string
	if s.Partial {
		parts = append(parts, "interrupted, figures cover what was replayed")
	}
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts,
				fmt.Sprintf("%s of %s jobs %s", humanCount(float64(n)), humanCount(float64(s.Jobs)), what))
		}
	}
	add(s.Unfinished, "not finished")
	add(s.Rejected, "rejected")
	add(s.Lost, "lost")
	add(s.Cancelled, "cancelled")
	add(s.TimedOut, "timed out")
	if n := s.Unfinished + s.Rejected + s.Lost + s.Cancelled + s.TimedOut; n > 0 {
		parts = append(parts, "not in the completion times")
	}
	return strings.Join(parts, ", ")
}

// wrap writes a note, broken between words.
func (t *table) wrap(s string) {
	room := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i > 0 && room+1+width(word) > t.opt.Width:
			t.out.WriteString("\n  ")
			room = 2
		case i > 0:
			t.out.WriteByte(' ')
			room++
		}
		t.out.WriteString(word)
		room += width(word)
	}
	t.out.WriteByte('\n')
}

func width(s string) int { return utf8.RuneCountInString(s) }

func pad(s string, w int) string { return s + strings.Repeat(" ", max(0, w-width(s))) }

func left(s string, w int) string { return strings.Repeat(" ", max(0, w-width(s))) + s }

// clip shortens a name in the middle: the policy and its last knob both matter.
func clip(s string, w int) string {
	r := []rune(s)
	if len(r) <= w || w < 3 {
		return s
	}
	tail := (w - 1) / 3
	return string(r[:w-1-tail]) + "…" + string(r[len(r)-tail:])
}
