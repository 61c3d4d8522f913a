package slurm

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/muster-gpu/muster/cluster"
)

// acctField is a field that the tables of Slurm's accounting can show of a T.
type acctField[T any] struct {
	name  string
	width int
	left  bool
	get   func(v *view, r T) string
}

type acctColumn[T any] struct {
	*acctField[T]
	width int
	left  bool
}

// acctColumns reads a format such as "JobID,JobName%-30". A name may be abbreviated while it stays unambiguous.
func acctColumns[T any](format string, fields []acctField[T]) ([]acctColumn[T], error) {
	var out []acctColumn[T]
	for _, part := range strings.Split(format, ",") {
		name, size, hasSize := strings.Cut(strings.TrimSpace(part), "%")
		k := acctIndex(name, fields)
		if k < 0 {
			names := make([]string, len(fields))
			for i := range fields {
				names[i] = fields[i].name
			}
			return nil, says("Invalid field requested: %w", cluster.Unknown("field", name, names))
		}
		col := acctColumn[T]{&fields[k], fields[k].width, fields[k].left}
		if hasSize {
			digits, left := strings.CutPrefix(size, "-")
			n, ok := number(digits, 4096)
			if !ok {
				return nil, says("Invalid field requested: %q: %% is followed by a width", part)
			}
			if col.width = int(n); left {
				col.left = true
			}
		}
		out = append(out, col)
	}
	return out, nil
}

func acctIndex[T any](name string, fields []acctField[T]) int {
	if k := slices.IndexFunc(fields, func(f acctField[T]) bool { return strings.EqualFold(f.name, name) }); k >= 0 ||
		len(name) < 2 {
		return k
	}
	hit := -1
	for i := range fields {
		if len(fields[i].name) > len(name) && strings.EqualFold(fields[i].name[:len(name)], name) {
			if hit >= 0 {
				return -1
			}
			hit = i
		}
	}
	return hit
}

// acctText formats a table: in columns, or with bars where --parsable or --parsable2 asks for them.
func acctText[T any](s *settings, v *view, cols []acctColumn[T], rows []T) string {
	var b strings.Builder
	sep, last, bare := " ", " ", s.has("parsable") || s.has("parsable2")
	if bare {
		if sep = "|"; s.has("delimiter") {
			sep = s.get("delimiter")
		}
		if last = ""; s.has("parsable") && !s.has("parsable2") {
			last = sep
		}
	}
	line := func(text func(c *acctColumn[T]) string, cut bool) {
		for i := range cols {
			t := text(&cols[i])
			if !bare {
				t = plus(t, cols[i].width, !cols[i].left, cut)
			}
			if b.WriteString(t); i+1 < len(cols) {
				b.WriteString(sep)
			}
		}
		b.WriteString(last + "\n")
	}
	if !s.has("noheader") {
		line(func(c *acctColumn[T]) string { return c.name }, false)
		if !bare {
			line(func(c *acctColumn[T]) string { return strings.Repeat("-", c.width) }, false)
		}
	}
	for _, r := range rows {
		line(func(c *acctColumn[T]) string { return c.get(v, r) }, true)
	}
	return b.String()
}

// plus is fit, with a + at the end of a text that was cut, as in sacct.
func plus(s string, width int, right, mark bool) string {
	if mark && width > 0 && utf8.RuneCountInString(s) > width {
		return string([]rune(s)[:width-1]) + "+"
	}
	if width == 0 {
		return ""
	}
	return fit(s, width, right)
}

// acctNames lists the fields as --helpformat does, four in a line.
func acctNames[T any](fields []acctField[T]) string {
	var b strings.Builder
	for i, f := range fields {
		if b.WriteString(fit(f.name, 19, false)); i%4 == 3 || i == len(fields)-1 {
			b.WriteByte('\n')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}
