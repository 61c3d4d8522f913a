package slurm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// use is what happens to an option.
type use uint8

const (
	used    use = iota
	warned      // it has no meaning here: named on standard error
	refused     // ignoring it would run something else
)

// argument says whether an option takes one.
type argument uint8

const (
	flag     argument = iota // takes none
	needs                    // takes one
	optional                 // may take one, after =
)

// option is an option of one of the commands.
type option struct {
	name  string
	short byte // 0: none
	arg   argument
	use   use
	note  string // why it is ignored or refused
	env   string // sbatch: the variable that sets it
}

// found is an option on the command line.
type found struct {
	opt  *option
	text string
}

// argError is a mistake in the command line.
type argError struct{ text string }

func (e argError) Error() string { return e.text }

func badArg(format string, args ...any) error { return argError{fmt.Sprintf(format, args...)} }

// parseArgs reads options as getopt_long does: names may be abbreviated while they stay unambiguous. With first
// it stops at the first other word, as sbatch and srun do, because what follows belongs to the script.
func parseArgs(args []string, table []option, first bool) (opts []found, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return opts, append(rest, args[i+1:]...), nil
		case strings.HasPrefix(a, "--"):
			name, text, hasText := strings.Cut(a[2:], "=")
			o, err := lookup(name, table)
			if err != nil {
				return nil, nil, err
			}
			if o.arg == flag && hasText {
				return nil, nil, badArg("option '--%s' doesn't allow an argument", o.name)
			}
			if o.arg == needs && !hasText {
				if i++; i == len(args) {
					return nil, nil, badArg("option '--%s' requires an argument", o.name)
				}
				text = args[i]
			}
			opts = append(opts, found{o, text})
		case len(a) > 1 && a[0] == '-':
			n, more, err := shorts(a[1:], args[i+1:], table)
			if err != nil {
				return nil, nil, err
			}
			opts = append(opts, more...)
			i += n
		case first:
			return opts, args[i:], nil
		default:
			rest = append(rest, a)
		}
	}
	return opts, rest, nil
}

// shorts reads a word of one-letter options and says how many of the following words they took.
func shorts(word string, after []string, table []option) (int, []found, error) {
	var opts []found
	for j := 0; j < len(word); j++ {
		k := slices.IndexFunc(table, func(o option) bool { return o.short == word[j] && o.short != 0 })
		if k < 0 {
			return 0, nil, badArg("invalid option -- '%c'", word[j])
		}
		o := &table[k]
		switch {
		case o.arg == flag:
			opts = append(opts, found{o, ""})
		case o.arg == optional:
			return 0, append(opts, found{o, word[j+1:]}), nil
		case j+1 < len(word):
			return 0, append(opts, found{o, word[j+1:]}), nil
		case len(after) == 0:
			return 0, nil, badArg("option requires an argument -- '%c'", word[j])
		default:
			return 1, append(opts, found{o, after[0]}), nil
		}
	}
	return 0, opts, nil
}

func lookup(name string, table []option) (*option, error) {
	var near []string
	var hit *option
	for i := range table {
		o := &table[i]
		if o.name == name && name != "" {
			return o, nil
		}
		if strings.HasPrefix(o.name, name) && name != "" {
			near, hit = append(near, "'--"+o.name+"'"), o
		}
	}
	if len(near) == 1 {
		return hit, nil
	}
	if len(near) > 1 {
		return nil, badArg("option '--%s' is ambiguous; possibilities: %s", name, strings.Join(near, " "))
	}
	names := make([]string, 0, len(table))
	for _, o := range table {
		names = append(names, o.name)
	}
	if n := cluster.Nearest(name, names); n != "" {
		return nil, badArg("unrecognized option '--%s': did you mean '--%s'?", name, n)
	}
	return nil, badArg("unrecognized option '--%s'", name)
}
