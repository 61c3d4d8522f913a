package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
)

// The setters of arguments, by type of value.

func whole[T any](name string, lo, hi int, field func(*T) *int) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q is not a whole number between %d and %d", v, lo, hi)
		}
		*field(t) = n
		return nil
	}}
}

func long[T any](name string, field func(*T) *int64) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < -1<<40 || n > 1<<40 {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*field(t) = n
		return nil
	}}
}

func span[T any](name string, field func(*T) *time.Duration) key[T] {
	return key[T]{name: name, set: func(t *T, v string) (err error) {
		*field(t), err = cluster.ParseDuration(v)
		return err
	}}
}

func instant[T any](name string, field func(*T) *cluster.Time) key[T] {
	return key[T]{name: name, set: func(t *T, v string) (err error) {
		*field(t), err = parseTime(v)
		return err
	}}
}

func text[T any](name string, field func(*T) *string) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		*field(t) = v
		return nil
	}}
}

func words[T any](name string, field func(*T) *[]string) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		*field(t) = list(v)
		return nil
	}}
}

func toggle[T any](name string, field func(*T) *bool) key[T] {
	return key[T]{name: name, flag: true, set: func(t *T, _ string) error {
		*field(t) = true
		return nil
	}}
}

func amount[T any](name string, field func(*T) *cluster.Milli) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		var g config.GPUs
		if err := g.UnmarshalText([]byte(v)); err != nil {
			return err
		}
		*field(t) = cluster.Milli(g)
		return nil
	}}
}

func cores[T any](name string, field func(*T) *cluster.Milli) key[T] {
	return key[T]{name: name, set: func(t *T, v string) error {
		var c config.Cores
		if err := c.UnmarshalText([]byte(v)); err != nil {
			return err
		}
		*field(t) = cluster.Milli(c)
		return nil
	}}
}

func memory[T any](name string, field func(*T) *cluster.MiB) key[T] {
	return key[T]{name: name, set: func(t *T, v string) (err error) {
		*field(t), err = config.ParseMemory(v)
		return err
	}}
}

// parseTime reads an instant: the time since the start.
func parseTime(s string) (cluster.Time, error) {
	d, err := cluster.ParseDuration(s)
	return cluster.Time(d), err
}

// parseDevices reads "3", "0-3" or "0-1,4" as a mask.
func parseDevices(s string) (uint64, error) {
	var mask uint64
	for _, part := range list(s) {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= cluster.MaxGPUsPerNode {
			return 0, fmt.Errorf("%q is not a GPU number or a range such as 0-3", part)
		}
		for i := a; i <= b; i++ {
			mask |= 1 << i
		}
	}
	return mask, nil
}
