package scenario

import (
	"fmt"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Error is a mistake in the text of a scenario.
type Error struct {
	File string
	Line int
	Err  error
}

// Error names the place and the mistake.
func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the mistake without its place.
func (e *Error) Unwrap() error { return e.Err }

// fields splits a line at blanks, except inside (...), [...] or "...". A "#" after a blank begins a
// comment.
func fields(line string) ([]string, error) {
	var out []string
	start, depth, quoted := -1, 0, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted:
			quoted = c != '"'
			continue
		case c == '"':
			quoted = true
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			if depth--; depth < 0 {
				return nil, fmt.Errorf("%q closes nothing", c)
			}
		case depth == 0 && (c == ' ' || c == '\t'):
			if start >= 0 {
				out = append(out, line[start:i])
			}
			start = -1
			continue
		case c == '#' && start < 0:
			return out, nil
		}
		if start < 0 {
			start = i
		}
	}
	if quoted || depth != 0 {
		return nil, fmt.Errorf("a quote or bracket is not closed")
	}
	if start >= 0 {
		out = append(out, line[start:])
	}
	return out, nil
}

// arg is one "key", "key=value" or, in expectations, "key<=value".
type arg struct{ key, op, value string }

var operators = []string{"<=", ">=", "!=", "<", ">", "="}

func parseArg(f string) arg {
	i := strings.IndexAny(f, "<>=!")
	if i < 0 {
		return arg{key: f}
	}
	for _, op := range operators {
		if strings.HasPrefix(f[i:], op) {
			return arg{f[:i], op, unquote(f[i+len(op):])}
		}
	}
	return arg{key: f}
}

func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// list splits "(a,b)" or "a,b"; commas inside brackets do not split.
func list(s string) []string {
	if strings.HasPrefix(s, "(") && strings.HasSuffix(s, ")") {
		s = s[1 : len(s)-1]
	}
	var out []string
	start, depth := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ',' && depth == 0:
			if f := strings.TrimSpace(s[start:i]); f != "" {
				out = append(out, f)
			}
			start = i + 1
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		}
	}
	return out
}

// key is an argument of a command. A flag takes no value.
type key[T any] struct {
	name string
	flag bool
	set  func(t *T, value string) error
}

// apply sets the arguments of a command, each at most once.
func apply[T any](t *T, table []key[T], args []string) error {
	seen := map[string]bool{}
	for _, f := range args {
		a := parseArg(f)
		k := find(table, a.key)
		switch {
		case k == nil:
			return cluster.Unknown("argument", a.key, names(table))
		case seen[a.key]:
			return fmt.Errorf("%s is given twice", a.key)
		case k.flag && a.op != "":
			return fmt.Errorf("%s takes no value", a.key)
		case !k.flag && a.op != "=":
			return fmt.Errorf("%s: write %s=VALUE", f, a.key)
		case !k.flag && a.value == "":
			return fmt.Errorf("%s: the value is missing", a.key)
		}
		seen[a.key] = true
		if err := k.set(t, a.value); err != nil {
			return fmt.Errorf("%s: %w", a.key, err)
		}
	}
	return nil
}

func find[T any](table []key[T], name string) *key[T] {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

func names[T any](table []key[T]) []string {
	var out []string
	for i := range table {
		out = append(out, table[i].name)
	}
	return out
}
