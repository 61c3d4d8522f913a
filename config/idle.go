package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Idle is what happens to a job that holds GPUs without using them. Times count from when the last of its GPUs
// fell below the threshold; 0: that step is left out.
type Idle struct {
	Below              float64 // compute utilisation, in percent
	Warn, Demote, Stop time.Duration
	Requeue            bool // a stopped job waits again
	// Queues (with those below them), Tiers and Kinds are exempt.
	Queues []string
	Tiers  []cluster.Tier
	Kinds  []cluster.Kind
}

type idleFile struct {
	Below   Percent     `yaml:"below"`
	Warn    Duration    `yaml:"warn"`
	Demote  Duration    `yaml:"demote"`
	Stop    Duration    `yaml:"stop"`
	Requeue bool        `yaml:"requeue"`
	Except  *exceptFile `yaml:"except"`
}

type exceptFile struct {
	Queues []string `yaml:"queues"`
	Tiers  []string `yaml:"tiers"`
	Kinds  []string `yaml:"kinds"`
}

// Percent is a percentage in a file: "5%", "0.5 %", or 5.
type Percent float64

// UnmarshalText reads the percentage.
func (p *Percent) UnmarshalText(b []byte) error {
	text, _ := strings.CutSuffix(strings.TrimSpace(string(b)), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return fmt.Errorf("%q is not a percentage such as 5%%, from 0%% to 100%%", b)
	}
	*p = Percent(v)
	return nil
}

// usualIdle is the default threshold, in percent: a process that only keeps its context alive stays below it.
const usualIdle = 5

// idle checks the settings; nil: there are none, and idle jobs are left alone.
func (f *idleFile) idle(queues []string) (*Idle, error) {
	if f == nil {
		return nil, nil
	}
	c := &Idle{Below: float64(f.Below), Warn: time.Duration(f.Warn), Demote: time.Duration(f.Demote),
		Stop: time.Duration(f.Stop), Requeue: f.Requeue}
	if c.Below == 0 {
		c.Below = usualIdle
	}
	last, lastName := time.Duration(0), ""
	for _, s := range []struct {
		name string
		d    time.Duration
	}{{"warn", c.Warn}, {"demote", c.Demote}, {"stop", c.Stop}} {
		if s.d == 0 {
			continue
		}
		if s.d <= last {
			return nil, fmt.Errorf("%s: %s must be longer than %s (%s): all times count from when a job became idle",
				s.name,
				cluster.FormatDuration(s.d), lastName, cluster.FormatDuration(last))
		}
		last, lastName = s.d, s.name
	}
	if last == 0 {
		return nil, errors.New("say when: warn, demote, stop, or some of them, each with a time such as 30m")
	}
	if c.Requeue && c.Stop == 0 {
		return nil, errors.New("requeue: only a job that is stopped can wait again, and stop is not given")
	}
	if f.Except == nil { // exempt by default
		c.Tiers, c.Kinds = []cluster.Tier{cluster.Critical}, []cluster.Kind{cluster.Service}
		return c, nil
	}
	return c, f.Except.into(c, queues)
}

func (f *exceptFile) into(c *Idle, queues []string) error {
	for _, q := range f.Queues {
		if !slices.Contains(queues, q) {
			return fmt.Errorf("except: queues: %w", cluster.Unknown("queue", q, queues))
		}
	}
	c.Queues = f.Queues
	for _, name := range f.Tiers {
		t, err := cluster.ParseTier(name)
		if err != nil {
			return fmt.Errorf("except: tiers: %w", err)
		}
		c.Tiers = append(c.Tiers, t)
	}
	for _, name := range f.Kinds {
		k, err := cluster.ParseKind(name)
		if err != nil {
			return fmt.Errorf("except: kinds: %w", err)
		}
		c.Kinds = append(c.Kinds, k)
	}
	return nil
}
