package search

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	"github.com/muster-gpu/muster/internal/splitmix"
)

// Kind is how the values of a parameter are drawn.
type Kind uint8

// The kinds of parameters.
const (
	Uniform    Kind = iota // between Low and High
	LogUniform             // its logarithm is uniform
	Choice                 // one of Values
	Int                    // an integer from Low to High, inclusive
	Grid                   // each of Values, combined with each of every other grid
)

// Parameter is a dimension of the search space.
type Parameter struct {
	Name      string
	Kind      Kind
	Low, High float64
	Values    []any // of Choice and Grid
}

// Check says what is wrong with a parameter.
func (p *Parameter) Check() error {
	finite := !math.IsNaN(p.Low) && !math.IsInf(p.Low, 0) && !math.IsNaN(p.High) && !math.IsInf(p.High, 0)
	switch p.Kind {
	case Choice, Grid:
		if len(p.Values) == 0 {
			return fmt.Errorf("parameters.%s: there is nothing to choose from", p.Name)
		}
		for _, v := range p.Values {
			if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
				return fmt.Errorf("parameters.%s: %g is not a number that programs can be given as JSON; write it as a text, in quotes", p.Name, f)
			}
		}
		return nil
	case LogUniform:
		if p.Low <= 0 {
			return fmt.Errorf("parameters.%s: a logarithm needs numbers above 0, not %g", p.Name, p.Low)
		}
	case Int:
		if finite && (p.Low != math.Trunc(p.Low) || p.High != math.Trunc(p.High) || math.Abs(p.Low) > 1<<52 ||
			math.Abs(p.High) > 1<<52) {
			return fmt.Errorf("parameters.%s: %g and %g must be whole numbers", p.Name, p.Low, p.High)
		}
	case Uniform:
	}
	if !finite || p.Low > p.High {
		return fmt.Errorf("parameters.%s: give the least and the most, not %g and %g", p.Name, p.Low, p.High)
	}
	return nil
}

// GridSize is the number of points of the parameters' grids; 1: there are none.
func GridSize(list []Parameter) int {
	n := 1
	for i := range list {
		if list[i].Kind == Grid {
			n = min(n*len(list[i].Values), MaxTrials+1)
		}
	}
	return n
}

// Value is a parameter's value in a configuration.
type Value struct {
	Name string
	V    any // float64, int64, or one of Values
}

// Config is the configuration of a trial: a function of the seed, the trial's number and each parameter's name
// alone, so that adding a parameter leaves the others unchanged. Grids are enumerated, the last parameter
// fastest.
func Config(list []Parameter, seed uint64, trial int) []Value {
	out := make([]Value, len(list))
	point := trial % GridSize(list)
	for i := len(list) - 1; i >= 0; i-- {
		p := &list[i]
		out[i].Name = p.Name
		if p.Kind == Grid {
			out[i].V = p.Values[point%len(p.Values)]
			point /= len(p.Values)
			continue
		}
		out[i].V = p.at(Draw(seed, trial, p.Name))
	}
	return out
}

// at is the value at a position between 0 and 1. Numbers have six digits, because people read them, and are the
// same on every machine. Rounding never leaves the bounds.
func (p *Parameter) at(u float64) any {
	switch p.Kind {
	case LogUniform:
		return p.within(short(math.Exp(math.Log(p.Low) + u*(math.Log(p.High)-math.Log(p.Low)))))
	case Choice:
		return p.Values[min(int(u*float64(len(p.Values))), len(p.Values)-1)]
	case Int:
		return int64(p.Low + math.Floor(u*(p.High-p.Low+1)))
	case Uniform, Grid:
	}
	return p.within(short(p.Low + u*(p.High-p.Low)))
}

// within clamps a number to the bounds.
func (p *Parameter) within(v float64) float64 { return min(max(v, p.Low), p.High) }

func short(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return v
}

// Draw is a number in [0, 1) that depends only on the arguments: the finaliser of splitmix64 over their hash.
func Draw(seed uint64, trial int, name string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	x := splitmix.Mix(splitmix.Mix(seed+splitmix.Step) ^ splitmix.Mix(uint64(trial)*0xd1342543de82ef95+1) ^ h.Sum64())
	return float64(x>>11) / (1 << 53)
}

// Normal is a draw from the normal distribution (Box and Muller).
func Normal(seed uint64, trial int, name string) float64 {
	u, v := Draw(seed, trial, name+"/u"), Draw(seed, trial, name+"/v")
	return math.Sqrt(-2*math.Log(1-u)) * math.Cos(2*math.Pi*v)
}
