package past

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// Predict estimates a job's run time from the jobs that completed last: of its
// user and name, those of its size if there are any, else all; else of its name,
// of any user; the same of the two names that are most alike; else of its user;
// else of all. 0: the policy predicts nothing, or none completed yet.
func (b *Book) Predict(spec *cluster.Job) time.Duration {
	if !b.world.Traits.Predicts || len(b.jobs) == 0 {
		return 0
	}
	var byName, own, sized mean
	names := []string{spec.Name}
	named := func(c *sched.Earlier) bool { return slices.Contains(names, c.Name) }
	for try := 0; try < 2 && byName.n == 0 && spec.Name != ""; try++ {
		if try > 0 {
			names = b.alike(spec.Name)
		}
		for i := range b.jobs {
			c := &b.jobs[i]
			byName.add(c, named(c))
			own.add(c, named(c) && c.User == spec.User)
			sized.add(c, named(c) && c.User == spec.User && c.Milli == spec.GPUMilli())
		}
	}
	var users, all mean
	for i := range b.jobs {
		c := &b.jobs[i]
		users.add(c, c.User == spec.User)
		all.add(c, true)
	}
	for _, m := range []*mean{&sized, &own, &byName, &users} {
		if m.n > 0 {
			return m.of()
		}
	}
	return all.of()
}

// mean adds up run times; they are at most a hundred years and there are at most
// two thousand, so it counts milliseconds.
type mean struct{ sum, n int64 }

func (m *mean) add(c *sched.Earlier, counts bool) {
	if counts {
		m.sum += int64(c.Ran / time.Millisecond)
		m.n++
	}
}

func (m *mean) of() time.Duration { return time.Duration(m.sum/m.n) * time.Millisecond }

// alike lists at most two names of earlier jobs that are most like a name, and
// enough like it (six tenths).
func (b *Book) alike(name string) (best []string) {
	var scores [2]likeness
	seen := map[string]bool{} // looked up only
	for i := range b.jobs {
		o := b.jobs[i].Name
		if o == "" || seen[o] {
			continue
		}
		seen[o] = true
		most := likeness{min(len(name), len(o)), len(name) + len(o)}
		if !most.enough() {
			continue // their lengths alone tell them apart
		}
		s := likeness{matching(o, name), len(name) + len(o)}
		if !s.enough() {
			continue
		}
		at := len(best)
		for at > 0 && (scores[at-1].less(s) || !s.less(scores[at-1]) && o > best[at-1]) {
			at--
		}
		switch {
		case at == 2:
			continue
		case len(best) < 2:
			best = append(best, "")
		}
		copy(best[at+1:], best[at:])
		copy(scores[at+1:], scores[at:])
		best[at], scores[at] = o, s
	}
	return best
}

// likeness is of so many bytes of two texts that match, and their length together.
type likeness struct{ matching, length int }

func (l likeness) enough() bool         { return 20*l.matching >= 6*l.length }
func (l likeness) less(m likeness) bool { return l.matching*m.length < m.matching*l.length }

// matching counts the bytes of two texts that match: in their longest common
// part, and likewise to its left and to its right (Ratcliff and Obershelp).
func matching(a, b string) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	long, atA, atB := 0, 0, 0
	runs := make([]int, len(b)+1) // ending at each byte of b, of the previous byte of a
	for i := range len(a) {
		for k := len(b) - 1; k >= 0; k-- {
			if a[i] != b[k] {
				runs[k+1] = 0
				continue
			}
			runs[k+1] = runs[k] + 1
			if n := runs[k+1]; n > long || n == long && i-n+1 == atA && k-n+1 < atB {
				long, atA, atB = n, i-n+1, k-n+1
			}
		}
	}
	if long == 0 {
		return 0
	}
	return long + matching(a[:atA], b[:atB]) + matching(a[atA+long:], b[atB+long:])
}
