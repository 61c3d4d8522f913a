package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

type defragFile struct {
	Mode    string   `yaml:"mode"`
	Moves   int      `yaml:"moves"`
	PerHour int      `yaml:"per_hour"`
	Chain   int      `yaml:"chain"`
	Every   Duration `yaml:"every"`
	Horizon Duration `yaml:"horizon"`
	// Protected are times of the week in which no job is moved, on the clock of Zone.
	Protected []string `yaml:"protected"`
	Zone      string   `yaml:"zone"`
}

// defrag checks the settings; without them moves are made on request only. timezone is the file's own.
func (f *defragFile) defrag(timezone string) (*engine.Defrag, error) {
	if f == nil {
		return &engine.Defrag{}, nil
	}
	mode := "plan"
	if f.Mode != "" {
		mode = f.Mode
	}
	d, err := engine.ParseDefrag(mode)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mode: %w", err)
	case f.Moves < 0 || f.PerHour < 0 || f.Chain < 0 || f.Every < 0 || f.Horizon < 0:
		return nil, fmt.Errorf("moves, per_hour, chain, every and horizon are not below 0")
	case f.Every > 0 && time.Duration(f.Every) < time.Second:
		return nil, fmt.Errorf("every: %s; a second is the shortest", cluster.FormatDuration(time.Duration(f.Every)))
	}
	protected, err := ParseWeekly(f.Protected, cmp.Or(f.Zone, timezone))
	switch {
	case len(f.Protected) == 0 && f.Zone == "":
	case err != nil:
		return nil, err
	case d == nil:
		return nil, errors.New("protected: mode: off keeps all jobs in place at any time")
	}
	if d != nil {
		d.Protected = protected
		d.Moves, d.PerHour, d.Chain, d.Every, d.Horizon = f.Moves, f.PerHour, f.Chain, time.Duration(f.Every),
			time.Duration(f.Horizon)
	}
	return d, nil
}

// defragText is the setting in words.
func defragText(d *engine.Defrag) string {
	w := words{d.String()}
	if d != nil {
		w.number("moves", int64(d.Moves))
		w.number("per_hour", int64(d.PerHour))
		w.number("chain", int64(d.Chain))
		for _, s := range []struct {
			name string
			d    time.Duration
		}{{"every", d.Every}, {"horizon", d.Horizon}} {
			if s.d > 0 {
				w.add(s.name, cluster.FormatDuration(s.d))
			}
		}
		if d.Protected != nil {
			w.add("protected", weeklyText(d.Protected))
		}
	}
	return w.text()
}

// kubeDefragFile is the settings on a cluster, where a place is kept for pods that have yet to be created.
type kubeDefragFile struct {
	defragFile `yaml:",inline"`
	Await      Duration `yaml:"await"`
}

// moves checks the settings; without them no gang is moved.
func (f *kubeDefragFile) moves(timezone string) (*engine.Defrag, time.Duration, error) {
	if f == nil {
		return nil, 0, nil
	}
	if f.Await < 0 || f.Await > 0 && time.Duration(f.Await) < time.Second {
		return nil, 0, fmt.Errorf("await: %s; a second is the shortest", cluster.FormatDuration(time.Duration(f.Await)))
	}
	d, err := f.defrag(timezone)
	return d, time.Duration(f.Await), err
}

func kubeDefragText(d *engine.Defrag, await time.Duration) string {
	w := words{defragText(d)}
	if d != nil && await > 0 {
		w.add("await", cluster.FormatDuration(await))
	}
	return w.text()
}
