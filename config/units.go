package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
)

// GPUs is an amount of GPUs in a file ("4", "0.5"), kept in milli-GPU;
// "unlimited" is cluster.Unlimited.
type GPUs cluster.Milli

// UnmarshalText reads the amount.
func (g *GPUs) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "unlimited" || s == "none" {
		*g = GPUs(cluster.Unlimited)
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0) || v > 1e9 || tooFine(v) {
		return fmt.Errorf("%q is not a number of GPUs (0, or between 0.001 and 1e9, or unlimited)", s)
	}
	*g = GPUs(math.Round(v * 1000))
	return nil
}

// tooFine reports whether an amount stored in thousandths would become 0, which has another meaning.
func tooFine(v float64) bool { return v > 0 && v < 0.001 }

// Memory is an amount of memory in a file: a number with MiB, GiB, TiB (or M,
// G, T, MB, GB, TB, all taken as binary); without a unit it is MiB.
type Memory cluster.MiB

// UnmarshalText reads the amount.
func (m *Memory) UnmarshalText(b []byte) error {
	v, err := ParseMemory(string(b))
	*m = Memory(v)
	return err
}

// ParseMemory reads an amount of memory as MiB.
func ParseMemory(s string) (cluster.MiB, error) {
	num := strings.TrimRight(s, "iBbKMGTkmgt")
	unit := strings.ToUpper(strings.TrimRight(s[len(num):], "iBb"))
	mul := map[string]float64{"": 1, "K": 1. / 1024, "M": 1, "G": 1024, "T": 1 << 20}[unit]
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil || mul == 0 || !(v >= 0) || v*mul > float64(cluster.MaxMiB) {
		return 0, fmt.Errorf("%q is not an amount of memory such as 512MiB, 80GiB or 2TiB", s)
	}
	if v > 0 && v*mul < 1 {
		return 0, fmt.Errorf("%q is less than 1MiB, the least amount of memory that is counted", s)
	}
	return cluster.MiB(math.Round(v * mul)), nil
}

// Cores is a number of CPU cores in a file, kept in milli-cores.
type Cores cluster.Milli

// UnmarshalText reads the number of cores.
func (c *Cores) UnmarshalText(b []byte) error {
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(v >= 0) || v > 1e6 || tooFine(v) {
		return fmt.Errorf("%q is not a number of CPU cores (0, or between 0.001 and 1e6)", b)
	}
	*c = Cores(math.Round(v * 1000))
	return nil
}

// Duration is a span of time in a file: "90s", "1h30m", "2d", "1w".
type Duration time.Duration

// UnmarshalText reads the duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := cluster.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Clock is a time of day in a file: "22:00", kept as the time since midnight.
type Clock time.Duration

// UnmarshalText reads the time of day.
func (c *Clock) UnmarshalText(b []byte) error {
	if d, err := cluster.ParseDuration(string(b)); err == nil && d <= 24*time.Hour {
		*c = Clock(d) // "22h"
		return nil
	}
	h, m, ok := strings.Cut(string(b), ":")
	hh, err1 := strconv.Atoi(h)
	mm, err2 := strconv.Atoi(m)
	if !ok || err1 != nil || err2 != nil || hh < 0 || hh > 24 || mm < 0 || mm > 59 || hh == 24 && mm > 0 {
		return fmt.Errorf("%q is not a time of day such as 07:00", b)
	}
	*c = Clock(time.Duration(hh)*time.Hour + time.Duration(mm)*time.Minute)
	return nil
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Days is a set of weekdays in a file: "mon-fri", "sat,sun", "daily".
type Days uint8

// UnmarshalYAML reads the days, as a text or as a list.
func (d *Days) UnmarshalYAML(n *yaml.Node) error {
	text := n.Value
	if n.Kind == yaml.SequenceNode {
		var days []string
		if err := n.Decode(&days); err != nil {
			return err
		}
		text = strings.Join(days, ",")
	}
	return d.UnmarshalText([]byte(text))
}

// UnmarshalText reads the days.
func (d *Days) UnmarshalText(b []byte) error {
	if string(b) == "daily" {
		*d = 0
		return nil
	}
	for part := range strings.SplitSeq(strings.ToLower(string(b)), ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		i, j := dayIndex(from), dayIndex(to)
		if !ranged {
			j = i
		}
		if i < 0 || j < 0 {
			return fmt.Errorf("%q is not a set of weekdays such as mon-fri or sat,sun", b)
		}
		for k := i; ; k = (k + 1) % 7 {
			*d |= 1 << k
			if k == j {
				break
			}
		}
	}
	return nil
}

func dayIndex(s string) int {
	for i, n := range dayNames {
		if len(s) >= len(n) && strings.HasPrefix(strings.ToLower(time.Weekday(i).String()), s) {
			return i
		}
	}
	return -1
}

// maxExpand bounds how many names one range may have.
const maxExpand = 1 << 20

// Expand turns "n[1-4,7]" into n1 n2 n3 n4 n7; leading zeros are kept
// ("n[01-10]"). Several lists are separated by commas outside brackets.
func Expand(s string) ([]string, error) {
	var out []string
	for s != "" {
		cut, depth := len(s), 0
		for i, r := range s {
			switch r {
			case '[':
				depth++
			case ']':
				depth--
			}
			if r == ',' && depth == 0 {
				cut = i
				break
			}
		}
		names, err := expandOne(s[:cut])
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > maxExpand {
			return nil, fmt.Errorf("%q stands for more than %d names", s, maxExpand)
		}
		s = strings.TrimPrefix(s[cut:], ",")
	}
	return out, nil
}

func expandOne(s string) ([]string, error) {
	open := strings.IndexByte(s, '[')
	end := strings.IndexByte(s, ']')
	if open < 0 && end < 0 {
		return []string{strings.TrimSpace(s)}, nil
	}
	if open < 0 || end < open || strings.ContainsAny(s[end+1:], "[]") {
		return nil, fmt.Errorf("%q: brackets must look like n[1-4,7]", s)
	}
	var out []string
	for part := range strings.SplitSeq(s[open+1:end], ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a || b-a >= maxExpand {
			return nil, fmt.Errorf("%q: %q is not a number or a range such as 1-4", s, part)
		}
		for i := a; i <= b; i++ {
			out = append(out, fmt.Sprintf("%s%0*d%s", s[:open], len(lo), i, s[end+1:]))
		}
	}
	return out, nil
}
