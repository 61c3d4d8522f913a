package config

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

// savingFile says how often jobs are told to write checkpoints.
type savingFile struct {
	NodeMTBF Duration `yaml:"node_mtbf"`
	GPUMTBF  Duration `yaml:"gpu_mtbf"`
	Min      Duration `yaml:"min"`
	Max      Duration `yaml:"max"`
}

// saving checks the settings; nil: jobs are not told.
func (f *savingFile) saving() (*perf.Saving, error) {
	if f == nil {
		return nil, nil
	}
	s := &perf.Saving{Interruptions: perf.Interruptions{Node: time.Duration(f.NodeMTBF), GPU: time.Duration(f.GPUMTBF)},
		Min: time.Duration(f.Min), Max: time.Duration(f.Max)}
	return s, s.Check()
}

func savingText(s *perf.Saving) string {
	w := words{"as often as loses least"}
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"node_mtbf", s.Node}, {"gpu_mtbf", s.GPU}, {"min", s.Min}, {"max", s.Max}} {
		if x.d > 0 {
			w.add(x.name, cluster.FormatDuration(x.d))
		}
	}
	return w.text()
}
