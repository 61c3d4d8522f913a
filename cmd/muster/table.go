package main

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// least is the width below which no column of a table is shortened: a short word, or a number.
const least = 8

// table is rows of cells under heads.
type table struct {
	heads []string
	rows  [][]string
	bare  bool // the heads are not shown
}

// lines are what is shown.
func (t *table) lines() [][]string {
	if t.bare {
		return t.rows
	}
	return append([][]string{t.heads}, t.rows...)
}

// widths are those of the columns, and of a line; columns are two blanks apart.
func (t *table) widths() (wide []int, total int) {
	wide, total = make([]int, len(t.heads)), 2*(len(t.heads)-1)
	for _, r := range t.lines() {
		for k, text := range r {
			wide[k] = max(wide[k], utf8.RuneCountInString(text))
		}
	}
	for _, w := range wide {
		total += w
	}
	return wide, total
}

// fit makes the lines no longer than a terminal's: it shortens cells, those of the widest column first, none
// below a short word. Where that does not do, it leaves out columns of spare, given by their heads, the first
// ones first.
func (t *table) fit(terminal int, spare ...string) {
	if terminal <= 0 {
		return
	}
	for ; len(spare) > 0 && t.narrowest() > terminal; spare = spare[1:] {
		t.drop(spare[0])
	}
	wide, total := t.widths()
	for ; total > terminal; total-- {
		widest := 0
		for k := range wide {
			if wide[k] >= wide[widest] {
				widest = k
			}
		}
		if wide[widest] <= least {
			break
		}
		wide[widest]--
	}
	for _, r := range t.lines() {
		for k, text := range r {
			if letters := []rune(text); len(letters) > wide[k] {
				r[k] = string(letters[:wide[k]-1]) + "…"
			}
		}
	}
}

// narrowest is how long the lines are when every cell is as short as it may be.
func (t *table) narrowest() int {
	wide, _ := t.widths()
	total := 2 * (len(wide) - 1)
	for _, w := range wide {
		total += min(w, least)
	}
	return total
}

// drop takes out a column, if it is there.
func (t *table) drop(head string) {
	k := slices.Index(t.heads, head)
	if k < 0 {
		return
	}
	t.heads = slices.Delete(t.heads, k, k+1)
	for i := range t.rows {
		t.rows[i] = slices.Delete(t.rows[i], k, k+1)
	}
}

// show writes the table with its columns aligned; on a terminal no wider than that, and each cell as dress has
// it, which may add only what has no width. nil: as it is.
func (t *table) show(w io.Writer, dress func(head, text string) string, spare ...string) error {
	if isTTY(w) {
		t.fit(width(w), spare...)
	} else {
		dress = nil
	}
	wide, _ := t.widths()
	var b strings.Builder
	for _, row := range t.lines() {
		for k, text := range row {
			shown := text
			if dress != nil {
				shown = dress(t.heads[k], text)
			}
			b.WriteString(shown)
			if k < len(row)-1 {
				b.WriteString(strings.Repeat(" ", wide[k]-utf8.RuneCountInString(text)+2))
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
