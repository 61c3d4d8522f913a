package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Dist is a mixture of duration distributions.
type Dist []DistPart

// DistPart is one component of a mixture.
type DistPart struct {
	Weight float64 // relative to the other parts
	Kind   string  // "fixed", "exponential", "lognormal", "pareto" or "quantiles"
	// Args, in seconds where they are times: fixed (value), exponential (mean),
	// lognormal (median, sigma), pareto (least, most, alpha).
	Args []float64
	// Points of a "quantiles" distribution: probability and value (seconds).
	Points [][2]float64
}

// String prints the mixture in the form that ParseDist reads.
func (d Dist) String() string {
	var b strings.Builder
	for i, p := range d {
		if i > 0 {
			b.WriteByte('+')
		}
		if len(d) > 1 || p.Weight != 1 {
			fmt.Fprintf(&b, "%g*", p.Weight)
		}
		b.WriteString(p.Kind)
		for k, a := range p.Args {
			if k == 0 || p.Kind == "pareto" && k == 1 {
				b.WriteString(":" + cluster.FormatDuration(asDuration(a)))
			} else {
				fmt.Fprintf(&b, ":%g", a)
			}
		}
		for k, q := range p.Points {
			b.WriteString(map[bool]string{true: ":", false: "/"}[k == 0])
			fmt.Fprintf(&b, "%g=%s", q[0], cluster.FormatDuration(asDuration(q[1])))
		}
	}
	return b.String()
}

// distKinds gives, for each kind, how many of its arguments are times and how
// many arguments it has.
var distKinds = []struct {
	name        string
	times, args int
	form        string
}{
	{"fixed", 1, 1, "fixed:10m"},
	{"exponential", 1, 1, "exponential:1h (the mean)"},
	{"lognormal", 1, 2, "lognormal:20m:1.8 (median and sigma)"},
	{"pareto", 2, 3, "pareto:1m:7d:1.1 (least, most, alpha)"},
	{"quantiles", 0, 0, "quantiles:0=10s/0.5=10m/1=2d"},
}

// ParseDist reads a mixture such as "0.8*lognormal:10m:1.5+0.2*pareto:1h:7d:1.1".
func ParseDist(s string) (Dist, error) {
	var d Dist
	for part := range strings.SplitSeq(s, "+") {
		p := DistPart{Weight: 1}
		if w, rest, ok := strings.Cut(part, "*"); ok {
			v, err := strconv.ParseFloat(w, 64)
			if err != nil || !(v > 0 && v < 1e9) {
				return nil, fmt.Errorf("distribution %q: the weight %q must be a number above 0", s, w)
			}
			p.Weight, part = v, rest
		}
		kind, args, _ := strings.Cut(part, ":")
		p.Kind = kind
		if err := p.parseArgs(args); err != nil {
			return nil, fmt.Errorf("distribution %q: %w", s, err)
		}
		d = append(d, p)
	}
	return d, d.check()
}

func (p *DistPart) parseArgs(args string) error {
	names := make([]string, 0, len(distKinds))
	for _, k := range distKinds {
		names = append(names, k.name)
		if k.name != p.Kind {
			continue
		}
		if p.Kind == "quantiles" {
			return p.parsePoints(args)
		}
		f := strings.Split(args, ":")
		if len(f) != k.args {
			return fmt.Errorf("write %s", k.form)
		}
		for i, a := range f {
			if i < k.times {
				v, err := cluster.ParseDuration(a)
				if err != nil {
					return err
				}
				p.Args = append(p.Args, v.Seconds())
				continue
			}
			v, err := strconv.ParseFloat(a, 64)
			if err != nil {
				return fmt.Errorf("%q is not a number; write %s", a, k.form)
			}
			p.Args = append(p.Args, v)
		}
		return nil
	}
	return cluster.Unknown("distribution", p.Kind, names)
}

func (p *DistPart) parsePoints(args string) error {
	for q := range strings.SplitSeq(args, "/") {
		prob, value, _ := strings.Cut(q, "=")
		x, err := strconv.ParseFloat(prob, 64)
		if err != nil {
			return fmt.Errorf("quantile %q: write probability=duration, for example 0.5=10m", q)
		}
		v, err := cluster.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("quantile %q: %w", q, err)
		}
		p.Points = append(p.Points, [2]float64{x, v.Seconds()})
	}
	return nil
}

// check says what is wrong with the parameters.
func (d Dist) check() error {
	most := cluster.MaxDuration.Seconds()
	ok := len(d) > 0
	for _, p := range d {
		ok = ok && p.Weight > 0 && p.Weight < 1e9
		a := p.Args
		switch {
		case p.Kind == "fixed" && len(a) == 1, p.Kind == "exponential" && len(a) == 1:
			ok = ok && a[0] > 0 && a[0] <= most
		case p.Kind == "lognormal" && len(a) == 2:
			ok = ok && a[0] > 0 && a[0] <= most && a[1] >= 0 && a[1] <= 10
		case p.Kind == "pareto" && len(a) == 3:
			ok = ok && a[0] > 0 && a[1] > a[0] && a[1] <= most && a[2] > 0 && a[2] <= 100
		case p.Kind == "quantiles" && len(p.Points) >= 2:
			n := len(p.Points)
			ok = ok && p.Points[0][0] == 0 && p.Points[n-1][0] == 1 && p.Points[0][1] > 0
			for i := 1; i < n; i++ {
				ok = ok && p.Points[i][0] > p.Points[i-1][0] && p.Points[i][1] >= p.Points[i-1][1]
			}
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("distribution %q: times must be above 0, sigma 0 to 10, pareto's most above its least, "+
				"and quantiles must rise from probability 0 to 1", d)
		}
	}
	if !ok {
		return fmt.Errorf("an empty distribution")
	}
	return nil
}

// sample draws a duration in seconds.
func (d Dist) sample(r *rand.Rand) float64 {
	total := 0.0
	for i := range d {
		total += d[i].Weight
	}
	u := r.Float64() * total
	for i := range d {
		if u -= d[i].Weight; u < 0 || i == len(d)-1 {
			return d[i].sample(r)
		}
	}
	return 0
}

// sample draws by inversion, except for the lognormal.
func (p *DistPart) sample(r *rand.Rand) float64 {
	switch p.Kind {
	case "exponential":
		return p.Args[0] * r.ExpFloat64()
	case "lognormal":
		return p.Args[0] * math.Exp(p.Args[1]*r.NormFloat64())
	case "pareto":
		// F(x) = (1 - (L/x)^a) / (1 - (L/H)^a) between L and H.
		l, h, a := p.Args[0], p.Args[1], p.Args[2]
		return l * math.Pow(1-r.Float64()*(1-math.Pow(l/h, a)), -1/a)
	case "quantiles":
		u := r.Float64()
		i := 1
		for i < len(p.Points)-1 && p.Points[i][0] < u {
			i++
		}
		x, y := p.Points[i-1], p.Points[i]
		// Linear in the logarithm: durations spread over orders of magnitude.
		return x[1] * math.Pow(y[1]/x[1], (u-x[0])/(y[0]-x[0]))
	}
	return p.Args[0]
}

// asDuration rounds seconds to the nanosecond, saturating.
func asDuration(sec float64) time.Duration {
	return time.Duration(math.Round(min(sec, cluster.MaxDuration.Seconds()) * float64(time.Second)))
}
