package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The rules for idle jobs are read, absent without the key, and invalid values are refused by the name of the
// field.
func TestIdle(t *testing.T) {
	read := func(text string) (*Serve, error) {
		return ReadServe("muster.yaml", strings.NewReader("queues: [{name: a}, {name: night}]\n"+text))
	}
	usual := Idle{Below: 5, Tiers: []cluster.Tier{cluster.Critical}, Kinds: []cluster.Kind{cluster.Service}}
	warnOnly, all := usual, usual
	warnOnly.Warn = time.Hour
	all.Below, all.Warn, all.Demote, all.Stop, all.Requeue = 2.5, 30*time.Minute, time.Hour, 2*time.Hour, true
	for text, want := range map[string]*Idle{
		"":                 nil,
		"idle: {warn: 1h}": &warnOnly,
		"idle: {below: 2.5%, warn: 30m, demote: 1h, stop: 2h, requeue: true}": &all,
		"idle: {stop: 1d, except: {queues: [night], kinds: [interactive]}}": {Below: 5, Stop: 24 * time.Hour,
			Queues: []string{"night"},
			Kinds:  []cluster.Kind{cluster.Interactive}},
	} {
		if c, err := read(text); err != nil || !reflect.DeepEqual(c.Idle, want) {
			t.Errorf("%s: %+v: %v", text, c, err)
		}
	}
	for text, want := range map[string]string{
		"idle: {}":                                            "idle: say when: warn, demote, stop",
		"idle: {below: 5%}":                                   "idle: say when: warn, demote, stop",
		"idle: {warn: 1h, demote: 30m}":                       "idle: demote: 30m must be longer than warn (1h)",
		"idle: {warn: 1h, stop: 1h}":                          "idle: stop: 1h must be longer than warn (1h)",
		"idle: {below: 120%, warn: 1h}":                       `"120%" is not a percentage`,
		"idle: {below: NaN, warn: 1h}":                        `"NaN" is not a percentage`,
		"idle: {warn: soon}":                                  `"soon" is not a duration`,
		"idle: {after: 1h}":                                   "after",
		"idle: {warn: 1h, requeue: true}":                     "requeue: only a job that is stopped",
		"idle: {warn: 1h, except: {queues: [nigth]}}":         `did you mean "night"`,
		"idle: {warn: 1h, except: {tiers: [standart]}}":       "except: tiers: ",
		"idle: {warn: 1h, except: {kinds: [training, batc]}}": "except: kinds: ",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
