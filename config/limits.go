package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
)

// Limits bound what one user can ask of muster serve; 0: no bound.
type Limits struct {
	Jobs, BareTasks             int
	Connections, Streams        int
	Name, Comment, Env, Request int // bytes
}

// ForUsers are the limits of a daemon that serves several users, ForOne those of one that serves only its own
// user.
var (
	ForUsers = Limits{Jobs: 20_000, BareTasks: 1_000, Connections: 256, Streams: 128, Name: 256, Comment: 4 << 10,
		Env: 256 << 10, Request: 4 << 20}
	ForOne = Limits{Connections: 2_000, Streams: 1_000, Name: 256, Comment: 64 << 10, Env: 2 << 20, Request: 16 << 20}
)

// Urgency says who may have critical jobs and priorities above 0.
type Urgency struct {
	Who    string   // EveryUser or OperatorsOnly; "": depends on how many users the daemon serves
	Queues []string // queues in which every user may
}

// The values of Urgency.Who.
const (
	EveryUser     = "everybody"
	OperatorsOnly = "operators"
)

type limitsFile struct {
	Jobs        *count `yaml:"jobs"`
	BareTasks   *count `yaml:"bare_tasks"`
	Connections *count `yaml:"connections"`
	Streams     *count `yaml:"streams"`
	Name        *size  `yaml:"name"`
	Comment     *size  `yaml:"comment"`
	Env         *size  `yaml:"environment"`
	Request     *size  `yaml:"request"`
}

type urgentFile struct {
	Who    string   `yaml:"who"`
	Queues []string `yaml:"queues"`
}

// count is a whole number of at least 1, or unlimited, which is 0.
type count int

// UnmarshalText reads the number.
func (c *count) UnmarshalText(b []byte) error {
	if string(b) == unlimited {
		*c = 0
		return nil
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > 1e9 {
		return fmt.Errorf("%q is not a whole number from 1 to 1e9, or %s", b, unlimited)
	}
	*c = count(n)
	return nil
}

const unlimited = "unlimited"

// size is a number of bytes: 4096, 4KiB or 1MiB, or unlimited, which is 0.
type size int

// UnmarshalText reads the number.
func (c *size) UnmarshalText(b []byte) error {
	text := string(b)
	if text == unlimited {
		*c = 0
		return nil
	}
	number, unit := text, 1
	for _, u := range []struct {
		suffix string
		bytes  int
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}} {
		if n := len(text) - len(u.suffix); n > 0 && text[n:] == u.suffix {
			number, unit = text[:n], u.bytes
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 64<<20/unit {
		return fmt.Errorf("%q is not a number of bytes from 1 to 64MiB, such as 4096, 4KiB or 1MiB, or %s", b,
			unlimited)
	}
	*c = size(n * unit)
	return nil
}

// over replaces defaults by what the file states.
func (f *limitsFile) over(l Limits) Limits {
	for _, v := range []struct {
		from *count
		to   *int
	}{{f.Jobs, &l.Jobs}, {f.BareTasks, &l.BareTasks}, {f.Connections, &l.Connections}, {f.Streams, &l.Streams}} {
		if v.from != nil {
			*v.to = int(*v.from)
		}
	}
	for _, v := range []struct {
		from *size
		to   *int
	}{{f.Name, &l.Name}, {f.Comment, &l.Comment}, {f.Env, &l.Env}, {f.Request, &l.Request}} {
		if v.from != nil {
			*v.to = int(*v.from)
		}
	}
	return l
}

// urgency checks the settings for urgent jobs.
func (f *urgentFile) urgency(queues []string) (u Urgency, err error) {
	u = Urgency{Who: f.Who, Queues: f.Queues}
	if f.Who != "" && f.Who != EveryUser && f.Who != OperatorsOnly {
		return u, At(cluster.Unknown("group of users", f.Who, []string{EveryUser, OperatorsOnly}), "who")
	}
	if f.Who == EveryUser && len(f.Queues) > 0 {
		return u, At(errors.New("everybody may already (who: everybody)"), "queues")
	}
	for _, q := range f.Queues {
		if !slices.Contains(queues, q) {
			return u, At(cluster.Unknown("queue", q, queues), "queues")
		}
	}
	return u, nil
}

// LimitsFor are the limits of a daemon that serves several users, or one.
func (c *Serve) LimitsFor(several bool) Limits {
	if several {
		return c.limits.over(ForUsers)
	}
	return c.limits.over(ForOne)
}

// Restricts reports whether urgent jobs need a right.
func (u *Urgency) Restricts(several bool) bool {
	return u.Who == OperatorsOnly || u.Who == "" && several
}

// settings lists what the file states; the rest depends on who runs the daemon.
func (f *limitsFile) settings(add func(live bool, key, value string)) {
	number := func(n int) string {
		if n == 0 {
			return unlimited
		}
		return strconv.Itoa(n)
	}
	for _, v := range []struct {
		key string
		n   *count
	}{{"jobs", f.Jobs}, {"bare_tasks", f.BareTasks}, {"connections", f.Connections}, {"streams", f.Streams}} {
		if v.n != nil {
			add(true, "limits."+v.key, number(int(*v.n)))
		}
	}
	for _, v := range []struct {
		key string
		n   *size
	}{{"name", f.Name}, {"comment", f.Comment}, {"environment", f.Env}, {"request", f.Request}} {
		if v.n != nil {
			add(true, "limits."+v.key, number(int(*v.n)))
		}
	}
}
