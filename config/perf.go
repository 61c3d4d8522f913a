package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

// perfFile is a performance table as people write it: factors, relative to the recorded speed.
type perfFile struct {
	// job model -> GPU model, or GPU model/MIG profile -> factor
	Speed    map[string]map[string]float64 `yaml:"speed"`
	Distance map[string]map[string]float64 `yaml:"distance"` // job model -> level -> factor
	Pairs    map[string]float64            `yaml:"pairs"`    // "victim/partner" -> factor
	Stages   map[string][]float64          `yaml:"stages"`   // job model -> time of each stage of an iteration
	Scale    map[string]map[int]float64    `yaml:"scale"`    // job model -> tasks -> factor
	Use      map[string]useFile            `yaml:"use"`      // job model -> what it uses of a GPU when alone on it
	Slicing  *slicingFile                  `yaml:"time_slicing"`
	Predict  bool                          `yaml:"predict"` // estimate the speeds and pairs that are not listed
}

// useFile is what a job model uses of a GPU, as fractions.
type useFile struct {
	Compute float64 `yaml:"compute"` // SM utilisation
	Memory  float64 `yaml:"memory"`  // memory bandwidth
}

// slicingFile is the cost of time slicing between processes on one GPU.
type slicingFile struct {
	// fraction of the time that is lost, for each process after the first
	Switch    float64            `yaml:"switch"`
	Duty      map[string]float64 `yaml:"duty"`      // job model -> fraction of the time that a process is busy
	Processes map[string]int     `yaml:"processes"` // job model -> processes of a job on each GPU
}

// LoadPerf reads a performance table.
func LoadPerf(path string) (*perf.Table, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ReadPerf(path, data)
}

// ReadPerf reads a performance table from memory; path is the file's name in errors.
func ReadPerf(path string, data []byte) (*perf.Table, error) {
	var f perfFile
	if err := decode(path, data, &f); err != nil {
		return nil, err
	}
	t, err := f.table()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// table converts the file to a table.
func (f *perfFile) table() (*perf.Table, error) {
	t := &perf.Table{Speed: map[string]map[string]int64{}, Distance: map[string]map[cluster.Level]int64{},
		Pairs: map[perf.Pair]int64{}, Use: map[string]perf.Use{}, Stages: map[string][]int64{},
		Scale: map[string]map[int]int64{}}
	for m, row := range f.Speed {
		t.Speed[m] = map[string]int64{}
		for gpu, v := range row {
			name, profile, slice := strings.Cut(gpu, "/")
			if g, ok := cluster.FindModel(name); ok {
				name = g.Name
				if p, ok := g.Profile(profile); slice && ok {
					profile = p.Name
				} else if slice {
					return nil, fmt.Errorf("speed of %s: %w", m, g.Lacks(profile))
				}
			}
			if slice {
				name += "/" + profile
			}
			t.Speed[m][name] = millionths(v)
		}
	}
	for m, row := range f.Distance {
		t.Distance[m] = map[cluster.Level]int64{}
		for name, v := range row {
			l, err := cluster.ParseLevel(name)
			if err != nil {
				return nil, fmt.Errorf("distance of %s: %w", m, err)
			}
			t.Distance[m][l] = millionths(v)
		}
	}
	for text, v := range f.Pairs {
		var p perf.Pair
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
		t.Pairs[p] = millionths(v)
	}
	for m, row := range f.Stages {
		for _, v := range row {
			t.Stages[m] = append(t.Stages[m], thousandths(v))
		}
		if len(row) == 0 {
			t.Stages[m] = nil // Check reports the error
		}
	}
	for m, row := range f.Scale {
		t.Scale[m] = map[int]int64{}
		for n, v := range row {
			t.Scale[m][n] = millionths(v)
		}
	}
	f.usage(t)
	if err := t.Check(); err != nil {
		return nil, err
	}
	if !f.Predict {
		if len(f.Use) > 0 {
			return nil, errors.New("use: pairs are estimated from it; add predict: true")
		}
		return t, nil
	}
	filled, speeds, beside := t.Predict()
	filled.Speeds, filled.Beside = speeds, beside
	return filled, nil
}

// usage converts what job models use of a GPU, and how they take turns on it.
func (f *perfFile) usage(t *perf.Table) {
	for m, u := range f.Use {
		t.Use[m] = perf.Use{Compute: millionths(u.Compute), Memory: millionths(u.Memory)}
	}
	if f.Slicing != nil {
		t.Slicing = &perf.TimeSlicing{Switch: millionths(f.Slicing.Switch), Duty: map[string]int64{},
			Processes: f.Slicing.Processes}
		for m, v := range f.Slicing.Duty {
			t.Slicing.Duty[m] = millionths(v)
		}
	}
}

func millionths(v float64) int64 {
	if math.IsNaN(v) || v > 1e6 {
		return -1
	}
	return int64(math.Round(v * perf.Million))
}

func thousandths(v float64) int64 {
	if math.IsNaN(v) || v > 1e12 {
		return -1
	}
	return int64(math.Round(v * 1000))
}
