package slurm

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// field is a value that a listing can show of a T.
type field[T any] struct {
	letter byte   // of -o; 0: only by name
	name   string // of -O, in lower case
	header string // of -o
	long   string // header of -O, if it differs
	get    func(v *view, r T) string
}

// column is a field as a format asks for it.
type column[T any] struct {
	*field[T]
	head   string
	width  int // 0: as wide as the text
	right  bool
	hash   bool   // as wide as the widest name
	before string // literal text in front
}

// table is a parsed format.
type table[T any] struct {
	cols []column[T]
	tail string
}

// parseFormat reads a format such as "%.18i %9P|%R".
func parseFormat[T any](s string, fields []field[T]) (table[T], error) {
	var t table[T]
	literal := ""
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			literal += string(s[i])
			continue
		}
		c := column[T]{before: literal}
		j := i + 1
		for ; j < len(s) && (s[j] == '.' || s[j] == '#'); j++ {
			if s[j] == '.' {
				c.right = true
			} else {
				c.hash = true
			}
		}
		from := j
		for j < len(s) && s[j] >= '0' && s[j] <= '9' {
			j++
		}
		c.width, _ = strconv.Atoi(s[from:j]) // no digits: 0
		if j == len(s) || c.width > 4096 {
			return t, says("Invalid job format specification: %s", s[i:])
		}
		k := slices.IndexFunc(fields, func(f field[T]) bool { return f.letter == s[j] })
		if k < 0 {
			return t, says("Invalid job format specification: %c (there are %s)", s[j], letters(fields))
		}
		c.field, c.head = &fields[k], fields[k].header
		t.cols = append(t.cols, c)
		literal, i = "", j
	}
	t.tail = literal
	return t, nil
}

func letters[T any](fields []field[T]) string {
	var b strings.Builder
	for _, f := range fields {
		if f.letter != 0 {
			b.WriteString(" %" + string(rune(f.letter)))
		}
	}
	return strings.TrimSpace(b.String())
}

// parseLongFormat reads the names of -O: name[:[.]width],... with a default width of 20.
func parseLongFormat[T any](s string, fields []field[T]) (table[T], error) {
	var t table[T]
	for _, part := range strings.Split(s, ",") {
		name, size, hasSize := strings.Cut(strings.TrimSpace(part), ":")
		c := column[T]{width: 20}
		if hasSize {
			var digits string
			digits, c.right = strings.CutPrefix(size, ".")
			n, ok := number(digits, 4096)
			if !ok {
				return t, says("Invalid job format specification: %s", part)
			}
			c.width = int(n)
		}
		k := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == strings.ToLower(name) && name != "" })
		if k < 0 {
			names := make([]string, 0, len(fields))
			for _, f := range fields {
				if f.name != "" {
					names = append(names, f.name)
				}
			}
			return t, says("Invalid job format specification: %s (there are: %s)", name, strings.Join(names, ", "))
		}
		c.field, c.head = &fields[k], fields[k].header
		if fields[k].long != "" {
			c.head = fields[k].long
		}
		t.cols = append(t.cols, c)
	}
	return t, nil
}

// print writes the header and the rows.
func (t table[T]) print(w io.Writer, v *view, rows []T, header bool) error {
	for i := range t.cols {
		if c := &t.cols[i]; c.hash {
			c.width = 9 // Slurm's minimum for names of nodes and partitions
			for _, r := range rows {
				c.width = max(c.width, utf8.RuneCountInString(c.get(v, r)))
			}
		}
	}
	var b strings.Builder
	line := func(text func(c *column[T]) string) {
		for i := range t.cols {
			c := &t.cols[i]
			b.WriteString(c.before)
			b.WriteString(fit(text(c), c.width, c.right))
		}
		b.WriteString(t.tail + "\n")
	}
	if header {
		line(func(c *column[T]) string { return c.head })
	}
	for _, r := range rows {
		line(func(c *column[T]) string { return c.get(v, r) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit cuts or pads a text to a width; 0 leaves it.
func fit(s string, width int, right bool) string {
	if width == 0 {
		return s
	}
	n := utf8.RuneCountInString(s)
	if n > width {
		return string([]rune(s)[:width])
	}
	if right {
		return strings.Repeat(" ", width-n) + s
	}
	return s + strings.Repeat(" ", width-n)
}
