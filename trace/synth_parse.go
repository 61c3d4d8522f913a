package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// setting is one key of the text form of a SynthSpec.
type setting struct {
	key, about string
	set        func(s *SynthSpec, v string) error
}

// settings lists the keys. A preset is applied before all others.
func settings() []setting {
	return []setting{
		{"preset", "small-team, philly-like, helios-like or inference-mix", func(*SynthSpec, string) error {
			return nil
		}},
		{"name", "of the workload", func(s *SynthSpec, v string) error { s.Name = v; return nil }},
		{"seed", "of the random numbers", func(s *SynthSpec, v string) (err error) {
			s.Seed, err = strconv.ParseUint(v, 10, 64)
			return numeric(v, err, "a whole number, 0 or more")
		}},
		{"jobs", "how many", integer(func(s *SynthSpec) *int { return &s.Jobs })},
		{"rate", "jobs per hour (instead of load and gpus)", number(func(s *SynthSpec) *float64 { return &s.Rate })},
		{"load", "offered load on gpus: GPU-seconds / (GPUs x span)", func(s *SynthSpec, v string) error {
			s.Rate = 0
			return number(func(s *SynthSpec) *float64 { return &s.Load })(s, v)
		}},
		{"gpus", "of the cluster that load is about", integer(func(s *SynthSpec) *int { return &s.GPUs })},
		{"arrivals", "poisson, bursty (cv 4) or diurnal (daily 0.6, weekend 0.4)", setArrivals},
		{"cv", "coefficient of variation of the gaps; 1 is Poisson",
			number(func(s *SynthSpec) *float64 { return &s.CV })},
		{"daily", "strength of the daily cycle, 0 to 1", number(func(s *SynthSpec) *float64 { return &s.Daily })},
		{"peak", "its highest hour, UTC", number(func(s *SynthSpec) *float64 { return &s.Peak })},
		{"weekend", "arrivals at the weekend, relative to other days",
			number(func(s *SynthSpec) *float64 { return &s.Weekend })},
		{"epoch", "Unix seconds of the start", func(s *SynthSpec, v string) (err error) {
			s.Epoch, err = strconv.ParseInt(v, 10, 64)
			return numeric(v, err, "Unix seconds")
		}},
		{"durations", "such as 0.8*lognormal:10m:1.5+0.2*pareto:1h:7d:1.1", func(s *SynthSpec, v string) (err error) {
			s.Durations, err = ParseDist(v)
			return err
		}},
		{"max", "longest run", duration(func(s *SynthSpec) *time.Duration { return &s.Max })},
		{"stretch", "a gang of g runs g^stretch times as long",
			number(func(s *SynthSpec) *float64 { return &s.Stretch })},
		{"gangs", "sizes and weights: 1:7/2:1/4:1/8:1",
			weights(func(s *SynthSpec) *[]Weighted[int] { return &s.Gangs }, strconv.Atoi)},
		{"fraction", "share of one-GPU jobs that ask for a part",
			number(func(s *SynthSpec) *float64 { return &s.Fraction })},
		{"shares", "the parts in milli-GPU: 250:1/500:1",
			weights(func(s *SynthSpec) *[]Weighted[int] { return &s.Shares }, parseShare)},
		{"cpu", "milli-cores per GPU", integer64(func(s *SynthSpec) *int64 { return &s.CPU }, cluster.MaxMilli)},
		{"ram", "MiB per GPU", integer64(func(s *SynthSpec) *int64 { return &s.RAM }, cluster.MaxMiB)},
		{"users", "how many", integer(func(s *SynthSpec) *int { return &s.Users })},
		{"userskew", "Zipf exponent of the users", number(func(s *SynthSpec) *float64 { return &s.UserSkew })},
		{"queues", "how many", integer(func(s *SynthSpec) *int { return &s.Queues })},
		{"queueskew", "Zipf exponent of the queues", number(func(s *SynthSpec) *float64 { return &s.QueueSkew })},
		{"kinds", "training:8/interactive:1/batch:1",
			weights(func(s *SynthSpec) *[]Weighted[cluster.Kind] { return &s.Kinds }, cluster.ParseKind)},
		{"tiers", "critical:1/standard:7/best-effort:2",
			weights(func(s *SynthSpec) *[]Weighted[cluster.Tier] { return &s.Tiers }, cluster.ParseTier)},
		{"models", "names of computations: bert:1/resnet50:2",
			weights(func(s *SynthSpec) *[]Weighted[string] { return &s.Models },
				func(v string) (string, error) { return v, nil })},
		{"estimates", "share of jobs with an estimate", number(func(s *SynthSpec) *float64 { return &s.Estimates })},
		{"error", "sigma of ln(estimate / run)", number(func(s *SynthSpec) *float64 { return &s.Error })},
		{"limits", "share of jobs with a time limit", number(func(s *SynthSpec) *float64 { return &s.Limits })},
		{"deadlines", "share of jobs with a deadline", number(func(s *SynthSpec) *float64 { return &s.Deadlines })},
		{"slack", "deadline = submit + run x (1 + slack x U(0.5, 1.5))",
			number(func(s *SynthSpec) *float64 { return &s.Slack })},
		{"elastic", "share of gangs that run with a quarter of their tasks, too",
			number(func(s *SynthSpec) *float64 { return &s.Elastic })},
		{"ckpt", "between checkpoints", duration(func(s *SynthSpec) *time.Duration { return &s.Checkpoint.Interval })},
		{"ckptcost", "to write one", duration(func(s *SynthSpec) *time.Duration { return &s.Checkpoint.Cost })},
		{"restart", "to come back", duration(func(s *SynthSpec) *time.Duration { return &s.Checkpoint.Restart })},
		{"nostate", "share of jobs that cannot checkpoint", number(func(s *SynthSpec) *float64 { return &s.NoState })},
		{"failed", "share of jobs that fail", number(func(s *SynthSpec) *float64 { return &s.Failed })},
		{"cancelled", "share of jobs that are cancelled", number(func(s *SynthSpec) *float64 { return &s.Cancelled })},
	}
}

// SynthHelp returns a line of help for each key of ParseSynth.
func SynthHelp() []string {
	var out []string
	for _, k := range settings() {
		out = append(out, fmt.Sprintf("%-10s %s", k.key, k.about))
	}
	return out
}

// ParseSynth reads "key=value,key=value". The keys are those of SynthHelp.
func ParseSynth(text string) (SynthSpec, error) {
	known := settings()
	byKey := map[string]setting{}
	var names []string
	for _, k := range known {
		byKey[k.key] = k
		names = append(names, k.key)
	}
	values := map[string]string{}
	var order []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return SynthSpec{}, fmt.Errorf("synth: %q: write key=value, for example jobs=1000", part)
		}
		if _, ok := byKey[key]; !ok {
			return SynthSpec{}, fmt.Errorf("synth: %w", cluster.Unknown("key", key, names))
		}
		if _, twice := values[key]; twice {
			return SynthSpec{}, fmt.Errorf("synth: %s is given twice", key)
		}
		values[key] = value
		order = append(order, key)
	}
	s, err := SynthPreset(values["preset"])
	if err != nil {
		return s, fmt.Errorf("synth: %w", err)
	}
	for _, key := range order {
		if err := byKey[key].set(&s, values[key]); err != nil {
			return s, fmt.Errorf("synth: %s: %w", key, err)
		}
	}
	return s, s.check()
}

func setArrivals(s *SynthSpec, v string) error {
	switch v {
	case "poisson":
		s.CV, s.Daily, s.Weekend = 1, 0, 1
	case "bursty":
		s.CV, s.Daily, s.Weekend = 4, 0, 1
	case "diurnal":
		s.CV, s.Daily, s.Weekend = 1, 0.6, 0.4
	default:
		return cluster.Unknown("arrivals", v, []string{"poisson", "bursty", "diurnal"})
	}
	return nil
}

// numeric turns a conversion error into one that states the valid form.
func numeric(v string, err error, want string) error {
	if err != nil {
		return fmt.Errorf("%q: must be %s", v, want)
	}
	return nil
}

func number(field func(*SynthSpec) *float64) func(*SynthSpec, string) error {
	return func(s *SynthSpec, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		*field(s) = f
		return numeric(v, err, "a number")
	}
}

func integer(field func(*SynthSpec) *int) func(*SynthSpec, string) error {
	return func(s *SynthSpec, v string) error {
		n, err := strconv.Atoi(v)
		*field(s) = n
		return numeric(v, err, "a whole number")
	}
}

func integer64(field func(*SynthSpec) *int64, most int64) func(*SynthSpec, string) error {
	return func(s *SynthSpec, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil && (n < 0 || n > most) {
			err = strconv.ErrRange
		}
		*field(s) = n
		return numeric(v, err, fmt.Sprintf("a whole number from 0 to %d", most))
	}
}

func duration(field func(*SynthSpec) *time.Duration) func(*SynthSpec, string) error {
	return func(s *SynthSpec, v string) (err error) {
		*field(s), err = cluster.ParseDuration(v)
		return err
	}
}

func parseShare(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > int(cluster.Whole) {
		return 0, fmt.Errorf("%q: must be 1 to %d milli-GPU", v, cluster.Whole)
	}
	return n, nil
}

// weights reads "value:weight/value:weight"; a missing weight is 1.
func weights[T any](field func(*SynthSpec) *[]Weighted[T], parse func(string) (T, error)) func(*SynthSpec,
	string) error {
	return func(s *SynthSpec, text string) error {
		var list []Weighted[T]
		for part := range strings.SplitSeq(text, "/") {
			name, w, has := strings.Cut(part, ":")
			v, err := parse(name)
			if err != nil {
				return err
			}
			item := Weighted[T]{Value: v, Weight: 1}
			if has {
				f, err := strconv.ParseFloat(w, 64)
				if err != nil || !(f > 0 && f < 1e9) {
					return fmt.Errorf("%q: the weight must be a number above 0", part)
				}
				item.Weight = f
			}
			list = append(list, item)
		}
		*field(s) = list
		return nil
	}
}
