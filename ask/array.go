package ask

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Array is a job array: its indices in order, and how many run at once.
type Array struct {
	Indices []int
	Cap     int // 0: no cap
}

// Limits of an array. Slurm's own default is 1001 and most sites raise it.
const (
	MaxArrayIndex = 4_000_000
	MaxArraySize  = 100_000
)

// ParseArray reads indices such as 0-15:2%4, 1,3,5-7 or [1-3].
func ParseArray(s string) (Array, error) {
	bad := func(why string) (Array, error) {
		return Array{}, fmt.Errorf("%q is not an array such as 0-15, 1,3,7 or 0-31:2%%4: %s", s, why)
	}
	spec, cut := s, ""
	if i := strings.IndexByte(s, '%'); i >= 0 { // Slurm accepts the cap anywhere
		j := i + 1
		for j < len(s) && s[j] >= '0' && s[j] <= '9' {
			j++
		}
		spec, cut = s[:i]+s[j:], s[i+1:j]
		if cut == "" {
			return bad("no number after %")
		}
	}
	if strings.HasPrefix(spec, "[") && strings.HasSuffix(spec, "]") {
		spec = spec[1 : len(spec)-1]
	}
	var a Array
	if cut != "" {
		n, ok := count(cut, MaxArrayIndex)
		if !ok {
			return bad("the number after % is too large")
		}
		a.Cap = int(n)
	}
	for _, term := range strings.Split(spec, ",") {
		lo, hi, step, ok := arrayTerm(term)
		if !ok {
			return bad(fmt.Sprintf("%q is neither an index nor a range; indices go to %d", term, MaxArrayIndex))
		}
		if (hi-lo)/step+1 > MaxArraySize-len(a.Indices) {
			return bad(fmt.Sprintf("more than %d elements", MaxArraySize))
		}
		for i := lo; i <= hi; i += step {
			a.Indices = append(a.Indices, i)
		}
	}
	sort.Ints(a.Indices)
	n := 0
	for i, v := range a.Indices {
		if i == 0 || v != a.Indices[n-1] {
			a.Indices[n] = v
			n++
		}
	}
	a.Indices = a.Indices[:n]
	return a, nil
}

func arrayTerm(s string) (lo, hi, step int, ok bool) {
	span, by, hasStep := strings.Cut(s, ":")
	from, to, isRange := strings.Cut(span, "-")
	if hasStep && !isRange {
		return 0, 0, 0, false
	}
	a, ok1 := count(from, MaxArrayIndex)
	b, n, ok2, ok3 := a, int64(1), true, true
	if isRange {
		b, ok2 = count(to, MaxArrayIndex)
	}
	if hasStep {
		n, ok3 = count(by, MaxArrayIndex)
	}
	return int(a), int(b), int(n), ok1 && ok2 && ok3 && a <= b && n > 0
}

// String formats the array as it is submitted and shown: ranges, the cap last.
func (a Array) String() string {
	s := Ranges(a.Indices)
	if a.Cap > 0 {
		s += "%" + strconv.Itoa(a.Cap)
	}
	return s
}

// Step is the distance between the first two indices, as in SLURM_ARRAY_TASK_STEP.
func (a Array) Step() int {
	if len(a.Indices) < 2 {
		return 1
	}
	return a.Indices[1] - a.Indices[0]
}

// Ranges formats ascending numbers as 1-3,5.
func Ranges(v []int) string {
	var b strings.Builder
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(v[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(v[j]))
		}
		i = j + 1
	}
	return b.String()
}

// count reads an unsigned decimal, without a sign.
func count(s string, most uint64) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil && n <= most
}
