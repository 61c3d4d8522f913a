package inss

import (
	"errors"
	"math"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/solve"
)

// Fit finds the activity of a model from batches that were measured alone on parts of a GPU, 10 to 20 of them: that of
// the least sum of squared relative errors, of which no coefficient is negative, so that latencies never fall with the
// batch nor rise with the part. off is the root of the mean of those squares.
func Fit(p service.Profile) (a Activity, off float64, err error) {
	if distinct(p, func(x service.Point) int { return x.Batch }) < 3 ||
		distinct(p, func(x service.Point) int { return int(x.Share) }) < 3 {
		return a, 0, errors.New("too little was measured: at least three batches and three shares are needed")
	}
	// The offset is the only coefficient that is not linear: it is searched on a grid that becomes ten times finer
	// around the best.
	best := math.Inf(1)
	const most, grid, rounds = 2.0, 40, 8
	for width, middle := most/2, most/2; width > most/2*math.Pow(0.1, rounds); width /= 10 {
		around := middle
		for k := -grid; k <= grid; k++ {
			offset := max(0, around+float64(width*float64(k)/grid))
			if c, sum := fitLinear(p, offset); sum < best {
				best, middle = sum, offset
				a = Activity{c[0], c[1], c[2], offset, c[3]}
			}
		}
	}
	if math.IsInf(best, 1) {
		return a, 0, errors.New("latencies must be above 0")
	}
	return a, math.Sqrt(best / float64(len(p))), nil
}

// Above is an activity that is slower by one factor, so that no batch was measured to take longer: plans that rely on
// what fits in the mean are too tight for some batches.
func (a Activity) Above(p service.Profile) Activity {
	slower := 1.0
	for _, x := range p {
		ms := a.At(x.Batch, float64(x.Share)/float64(cluster.Whole))
		slower = max(slower, x.Latency.Seconds()*1e3/ms)
	}
	return Activity{slower * a.Square, slower * a.Each, slower * a.Fixed, a.Offset, slower * a.Floor}
}

func distinct(p service.Profile, of func(service.Point) int) int {
	seen := map[int]bool{}
	for _, x := range p {
		seen[of(x)] = true
	}
	return len(seen)
}

// fitLinear finds the coefficients Square, Each, Fixed and Floor for an offset: of all choices which of them are 0,
// the best with none below.
func fitLinear(p service.Profile, offset float64) (best [4]float64, least float64) {
	least = math.Inf(1)
	rows := make([][4]float64, len(p)) // each divided by the latency: the sum of a row's terms is to be 1
	for i, x := range p {
		b, part, ms := float64(x.Batch), float64(x.Share)/float64(cluster.Whole), x.Latency.Seconds()*1e3
		d := (part + offset) * ms
		rows[i] = [4]float64{b * b / d, b / d, 1 / d, 1 / ms}
	}
	for set := 1; set < 1<<4; set++ {
		c, ok := leastSquares(rows, set)
		if !ok {
			continue
		}
		sum := 0.0
		for i := range rows {
			e := -1.0
			for k := range c {
				e += float64(c[k] * rows[i][k])
			}
			sum += float64(e * e)
		}
		if sum < least {
			best, least = c, sum
		}
	}
	return best, least
}

// leastSquares solves for the coefficients in a set, a bit each, so that the sums of the rows' terms are near 1. It
// fails if one of them is negative or not determined.
func leastSquares(rows [][4]float64, set int) (c [4]float64, ok bool) {
	var free []int
	for k := range c {
		if set>>k&1 == 1 {
			free = append(free, k)
		}
	}
	a, b, size := make([][]float64, len(free)), make([]float64, len(free)), make([]float64, len(free))
	for i, k := range free { // columns of length 1 keep the system well conditioned
		for r := range rows {
			size[i] += float64(rows[r][k] * rows[r][k])
		}
		size[i] = math.Sqrt(size[i])
	}
	for i, k := range free {
		a[i] = make([]float64, len(free))
		for r := range rows {
			for j, l := range free {
				a[i][j] += float64(rows[r][k] / size[i] * rows[r][l] / size[j])
			}
			b[i] += rows[r][k] / size[i]
		}
	}
	solve.Eliminate(a, b)
	for i, k := range free {
		if c[k] = b[i] / size[i]; !(c[k] >= 0) || math.IsInf(c[k], 1) {
			return c, false
		}
	}
	return c, true
}

// Beside is how much longer a batch took next to neighbours that used a part of the cache.
type Beside struct{ Cache, Slower float64 }

// FitSensitivity finds a model's sensitivity from measurements next to others, by least squares; at least 0.
func FitSensitivity(list []Beside) float64 {
	with, square := 0.0, 0.0
	for _, m := range list {
		with += float64(m.Cache * (m.Slower - 1))
		square += float64(m.Cache * m.Cache)
	}
	if square == 0 {
		return 0
	}
	return max(0, with/square)
}
