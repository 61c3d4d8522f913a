package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/service"
)

// forecastFile is what is expected of a service's requests.
type forecastFile struct {
	Times  map[string]float64 `yaml:"times"` // rates, by times of the week
	Zone   string             `yaml:"zone"`
	Steps  []expectedFile     `yaml:"steps"`
	Prompt float64            `yaml:"prompt"`
	Output float64            `yaml:"output"`
}

type expectedFile struct {
	At   string  `yaml:"at"`
	Rate float64 `yaml:"rate"`
}

func (f *forecastFile) forecast() (out service.Forecast, err error) {
	out.Prompt, out.Output = f.Prompt, f.Output
	clock, err := ParseZone(cmp.Or(f.Zone, "UTC"))
	if err != nil {
		return out, fmt.Errorf("zone: %w", err)
	}
	for _, text := range slices.Sorted(maps.Keys(f.Times)) {
		h, err := parseHours(text)
		if err != nil {
			return out, fmt.Errorf("times: %w", err)
		}
		t := service.ExpectedTimes{Weekly: *clock, Rate: f.Times[text]}
		t.Hours = append(t.Hours, h)
		out.Times = append(out.Times, t)
	}
	for i, s := range f.Steps {
		at, err := time.Parse(time.RFC3339, s.At)
		if err != nil {
			return out, fmt.Errorf("steps[%d]: at: %q is not a time such as 2026-11-27T08:00:00Z", i, s.At)
		}
		out.Steps = append(out.Steps, service.ExpectedStep{At: at.Unix(), Rate: s.Rate})
	}
	return out, nil
}
