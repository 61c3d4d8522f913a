package solve

import (
	"cmp"
	"math"
	"slices"
)

// programSteps bounds the dynamic program of Knapsack: menus times GPUs times choices.
const programSteps = 10_000_000

// Knapsack takes one choice of each menu so that the GPUs suffice and the total cost is minimal,
// and returns their indices in the menus: the multiple-choice knapsack, exact up to rounding. The
// first choice of each menu takes no GPUs; there is one kind. gap bounds how far the total cost may
// be above the minimum; it is 0 unless the program was too large.
// the program was too large.
//
// The relaxation is solved first: steps on the lower hull of each menu, by saving per GPU, until
// one does not fit (Sinha and Zoltners, The Multiple-Choice Knapsack Problem, 1979). Later steps
// that fit complete it to a solution. A choice whose cost at the relaxation's final price per GPU
// exceeds the difference between the two is in no better solution. Most choices are excluded; the
// rest is a dynamic program over menus and GPUs. If that would take more than ten million steps,
// the choices with the highest cost at that price are left out.
func Knapsack(menus [][]Choice, capacity int) (at []int, gap float64) {
	k := knapsack{menus: menus, at: make([]int, len(menus)), left: capacity}
	if unit := k.unit(); unit > 1 {
		k.left -= k.left % unit
	}
	if !k.relax() {
		return k.at, 0
	}
	k.core = slices.Clone(k.at)
	k.spare = k.left
	k.fill()
	return k.at, k.program()
}

type knapsack struct {
	menus [][]Choice
	at    []int
	left  int
	steps []hullStep
	next  int     // the first step that the relaxation does not take as a whole
	price float64 // per GPU, where the relaxation ends

	core  []int // the relaxation's choices without its fractional last step
	spare int   // GPUs that core leaves unused
}

// hullStep leads from one choice on a menu's lower hull to the next.
type hullStep struct {
	menu, to, gpus int
	saved          float64
}

// unit is the greatest common divisor of all choices' GPUs.
func (k *knapsack) unit() (d int) {
	for _, m := range k.menus {
		for i := range m {
			for a := m[i].GPUs; a != 0; {
				d, a = a, d%a
			}
		}
	}
	return d
}

// relax takes steps in order until one does not fit; false: all fit, or nothing is left.
func (k *knapsack) relax() bool {
	var order []int
	for i, m := range k.menus {
		order = k.hull(i, m, order[:0])
	}
	slices.SortStableFunc(k.steps, func(a, b hullStep) int {
		return cmp.Compare(b.saved*float64(a.gpus), a.saved*float64(b.gpus))
	})
	for k.next < len(k.steps) && k.steps[k.next].gpus <= k.left {
		k.take(&k.steps[k.next])
		k.next++
	}
	if k.next == len(k.steps) || k.left == 0 {
		return false
	}
	s := &k.steps[k.next]
	k.price = s.saved / float64(s.gpus)
	return true
}

func (k *knapsack) take(s *hullStep) {
	k.at[s.menu] = s.to
	k.left -= s.gpus
}

// hull adds the steps of a menu, each of which saves less per GPU than the previous one.
func (k *knapsack) hull(menu int, m []Choice, order []int) []int {
	for i := range m {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(m[a].GPUs, m[b].GPUs), cmp.Compare(m[a].Cost, m[b].Cost))
	})
	k.at[menu] = order[0] // the cheapest of those that take no GPUs
	first := len(k.steps)
	from := order[0]
	for _, i := range order[1:] {
		for {
			s := hullStep{menu, i, m[i].GPUs - m[from].GPUs, m[from].Cost - m[i].Cost}
			if s.gpus <= 0 || s.saved <= 0 {
				break
			}
			last := len(k.steps) - 1
			if last < first || k.steps[last].saved*float64(s.gpus) > s.saved*float64(k.steps[last].gpus) {
				k.steps = append(k.steps, s)
				from = i
				break
			}
			k.steps = k.steps[:last] // the previous one is above the line
			from = order[0]
			if last > first {
				from = k.steps[last-1].to
			}
		}
	}
	return order
}

// fill takes the later steps that fit.
func (k *knapsack) fill() {
	stuck := make([]bool, len(k.menus))
	for i := k.next; i < len(k.steps) && k.left > 0; i++ {
		if s := &k.steps[i]; stuck[s.menu] || s.gpus > k.left {
			stuck[s.menu] = true
		} else {
			k.take(s)
		}
	}
}

// loss is a choice's additional cost over the relaxation's, with GPUs at their price. It is never
// negative, up to rounding.
func (k *knapsack) loss(menu, choice int) float64 {
	x, b := &k.menus[menu][choice], &k.menus[menu][k.core[menu]]
	return x.Cost - b.Cost + k.price*float64(x.GPUs-b.GPUs)
}

// open is a menu with several choices left, and the fewest GPUs of any of them.
type open struct {
	menu, least int
	choices     []int
}

// within lists the menus that have several choices with a loss below limit, the GPUs that these may
// take above their minima, and the steps of the program.
func (k *knapsack) within(limit float64) (list []open, room, steps int) {
	room = k.spare
	var choices []int
	for i, m := range k.menus {
		first := len(choices)
		base := m[k.core[i]].GPUs
		least := base
		choices = append(choices, k.core[i])
		for c := range m {
			if c != k.core[i] && k.loss(i, c) < limit {
				choices = append(choices, c)
				least = min(least, m[c].GPUs)
			}
		}
		if len(choices)-first == 1 {
			choices = choices[:first]
			continue
		}
		list = append(list, open{i, least, choices[first:len(choices):len(choices)]})
		room += base - least
		steps += len(choices) - first
	}
	return list, room, steps * (room + 1)
}

// program searches the choices that may be part of a better solution, and returns how far above the
// minimum the cost may be.
func (k *knapsack) program() (gap float64) {
	between := k.price * float64(k.spare)
	for i := range k.at {
		between -= k.menus[i][k.core[i]].Cost - k.menus[i][k.at[i]].Cost
	}
	limit := between
	list, room, steps := k.within(limit)
	for steps > programSteps {
		if limit /= 2; limit < between*1e-6 {
			return between
		}
		list, room, steps = k.within(limit)
	}
	if limit < between {
		gap = between - limit // excluded choices can save no more than that
	}
	k.solve(list, room, between)
	return gap
}

// solve is the dynamic program. The filled solution saves between less than the fractional last
// step would.
func (k *knapsack) solve(list []open, room int, between float64) {
	width := room + 1
	best, next := make([]float64, width), make([]float64, width)
	taken := make([]uint16, len(list)*width)
	for n, o := range list {
		row := taken[n*width : (n+1)*width]
		for c := range next {
			next[c] = math.Inf(1)
		}
		for i, choice := range o.choices {
			x := &k.menus[o.menu][choice]
			cost := x.Cost - k.menus[o.menu][k.core[o.menu]].Cost
			for c := x.GPUs - o.least; c <= room; c++ {
				if sum := best[c-x.GPUs+o.least] + cost; sum < next[c] {
					next[c], row[c] = sum, uint16(i)
				}
			}
		}
		best, next = next, best
	}
	if saved := between - k.price*float64(k.spare) - best[room]; saved <= 0 {
		return // the filled solution is as good
	}
	copy(k.at, k.core)
	for n := len(list) - 1; n >= 0; n-- {
		o := &list[n]
		k.at[o.menu] = o.choices[taken[n*width+room]]
		room -= k.menus[o.menu][k.at[o.menu]].GPUs - o.least
	}
}
