package slurm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// number reads an unsigned decimal without sign or space; Slurm's own parser reads "-5" as a number of minutes
// near 2^32, which cannot be meant.
func number(s string, most int64) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= most
}

// ParseTime reads a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S. Like
// Slurm it rounds up to whole minutes; 0, -1, INFINITE and UNLIMITED are 0.
func ParseTime(s string) (time.Duration, error) {
	switch strings.ToUpper(s) {
	case "-1", "INFINITE", "UNLIMITED":
		return 0, nil
	}
	bad := fmt.Errorf("%q is not a time: write minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S", s)
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	parts := strings.Split(rest, ":")
	if hasDays && rest == "" {
		parts = []string{"0"} // "1-" is a day
	}
	if len(parts) > 3 {
		return 0, bad
	}
	const most = 1 << 32
	var v [3]int64
	for i, p := range parts {
		n, ok := number(p, most)
		if !ok {
			return 0, bad
		}
		v[i] = n
	}
	h, m, sec := v[0], v[1], v[2]
	switch {
	case hasDays: // the first is hours
	case len(parts) == 1:
		h, m, sec = 0, v[0], 0
	case len(parts) == 2:
		h, m, sec = 0, v[0], v[1]
	}
	d, ok := number(days, most)
	if !ok {
		return 0, bad
	}
	minutes := d*24*60 + h*60 + m + (sec+59)/60
	if minutes > int64(cluster.MaxDuration/time.Minute) {
		return 0, fmt.Errorf("%q is longer than a hundred years; UNLIMITED says that there is no limit", s)
	}
	return time.Duration(minutes) * time.Minute, nil
}

// ParseMemory reads an amount of memory in MiB, or with a suffix K, M, G or T, optionally followed by B.
// Kibibytes are rounded up.
func ParseMemory(s string) (cluster.MiB, error) {
	bad := fmt.Errorf("%q is not an amount of memory: write MiB, or a whole number with K, M, G or T", s)
	digits := strings.TrimRight(s, "kKmMgGtTbB")
	n, ok := number(digits, cluster.MaxMiB)
	if !ok {
		return 0, bad
	}
	switch strings.TrimSuffix(strings.ToUpper(s[len(digits):]), "B") {
	case "K":
		n = (n + 1023) / 1024
	case "":
		if len(digits) != len(s) {
			return 0, bad // "4B"
		}
	case "M":
	case "G":
		n *= 1024
	case "T":
		n *= 1024 * 1024
	default:
		return 0, bad
	}
	if n > cluster.MaxMiB {
		return 0, fmt.Errorf("%q is more memory than any machine has", s)
	}
	return n, nil
}

// Signal is the value of --signal.
type Signal struct {
	Name        string        // without SIG, or a number
	Before      time.Duration // how long before the time limit
	Shell       bool          // B: the first process only
	Reservation bool          // R: the job may reach into a reservation
}

// ParseSignal reads [R|B|RB:]signal[@seconds]; a minute before is the default.
func ParseSignal(s string) (Signal, error) {
	var v Signal
	rest := s
	if flags, after, ok := strings.Cut(s, ":"); ok {
		for _, f := range flags {
			switch f {
			case 'B', 'b':
				v.Shell = true
			case 'R', 'r':
				v.Reservation = true
			default:
				return Signal{}, fmt.Errorf("%q: the colon is preceded by R, B or both", s)
			}
		}
		rest = after
	}
	name, at, hasAt := strings.Cut(rest, "@")
	var err error
	if v.Name, _, err = ask.ParseSignal(name); err != nil {
		return Signal{}, fmt.Errorf("%q: %w", s, err)
	}
	v.Before = time.Minute
	if hasAt && at != "" {
		n, ok := number(at, math.MaxUint16)
		if !ok {
			return Signal{}, fmt.Errorf("%q: the @ is followed by seconds, 0 to 65535", s)
		}
		v.Before = time.Duration(n) * time.Second
	}
	return v, nil
}

// Term is one condition of a dependency. Index is -1 unless the other job was written as an element of an array
// (12_3); 12_* is the array.
type Term struct {
	Type  string
	Job   int
	Index int
	Delay time.Duration
}

// Dependency is the value of --dependency.
type Dependency struct {
	Terms []Term
	Any   bool // ?: one of the terms is enough
}

var dependencyTypes = []string{"after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "expand",
	"singleton"}

// ParseDependency reads type:job[+minutes][:job...][,...], with ? instead of the commas if one is enough, and
// singleton. The type of the first term may be omitted (Slurm: afterany).
func ParseDependency(s string) (Dependency, error) {
	var d Dependency
	bad := func(format string, args ...any) (Dependency, error) {
		return Dependency{},
			fmt.Errorf("%q is not a dependency such as afterok:12:13,afterany:14: %s", s, fmt.Sprintf(format, args...))
	}
	sep := ","
	if strings.Contains(s, "?") {
		if strings.Contains(s, ",") {
			return bad("it mixes , (all) and ? (any)")
		}
		sep, d.Any = "?", true
	}
	for _, part := range strings.Split(s, sep) {
		fields := strings.Split(part, ":")
		typ := strings.ToLower(fields[0])
		if _, ok := number(strings.SplitN(fields[0], "_", 2)[0], math.MaxInt32); ok {
			typ, fields = "afterany", append([]string{""}, fields...)
		}
		if !slices.Contains(dependencyTypes, typ) {
			return Dependency{}, fmt.Errorf("%q: %w", s, cluster.Unknown("dependency", fields[0], dependencyTypes))
		}
		if typ == "singleton" {
			if len(fields) > 1 {
				return bad("singleton names no job")
			}
			d.Terms = append(d.Terms, Term{Type: typ, Index: -1})
			continue
		}
		if len(fields) < 2 {
			return bad("%s needs a job", typ)
		}
		for _, f := range fields[1:] {
			t, err := dependencyJob(typ, f)
			if err != nil {
				return bad("%v", err)
			}
			d.Terms = append(d.Terms, t)
		}
	}
	return d, nil
}

func dependencyJob(typ, s string) (Term, error) {
	t := Term{Type: typ, Index: -1}
	id, delay, hasDelay := strings.Cut(s, "+")
	if hasDelay {
		if typ != "after" {
			return t, fmt.Errorf("only after takes +minutes")
		}
		n, ok := number(delay, 1<<24)
		if !ok {
			return t, fmt.Errorf("%q are no minutes", delay)
		}
		t.Delay = time.Duration(n) * time.Minute
	}
	job, index, hasIndex := strings.Cut(id, "_")
	n, ok := number(job, math.MaxInt32)
	if !ok || n == 0 {
		return t, fmt.Errorf("%q is not a job", s)
	}
	t.Job = int(n)
	if hasIndex && index != "*" {
		i, ok := number(index, ask.MaxArrayIndex)
		if !ok {
			return t, fmt.Errorf("%q is not an element of an array", s)
		}
		t.Index = int(i)
	}
	return t, nil
}
