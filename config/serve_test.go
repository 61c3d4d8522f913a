package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An error about a value names its line and what would be right.
func TestBadServe(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"policy: fifo\npolcy: las\n", `f.yaml:2: unknown key "polcy": did you mean "policy"?`},
		{"kill_wait: 1s\npolicy: fifoo\n", `f.yaml:2: policy: unknown policy "fifoo": did you mean "fifo"?`},
		{"policy: fifo\nloans: [{partition: p, back: {mon: 1}}]\n",
			"f.yaml:2: loans: one machine cannot be given back"},
		{"policy: fifo\npower: [{}]\n", "f.yaml:2: power: one machine cannot sleep"},
		{"\nplace: best\n", "f.yaml:2: place: "},
		{"backfill: esy\n", `did you mean "easy"?`},
		{"stop:\n  standard:\n    how: ask\n", "f.yaml:3: stop: standard: how: "},
		{"stop:\n  standad: {how: kill}\n", "f.yaml:2: stop: standad: "},
		{"stop: {standard: {how: kill, grase: 1s}}\n", `did you mean "grace"?`},
		{"policy: las\nkeep: soon\n", `f.yaml:2: "soon" is not a duration`},
		{"policy: las\nkeep: -1h\n", "f.yaml:2: "},
		{"cpus: many\n", `f.yaml:1: "many" is not a whole number`},
		{"insecure: ture\n", `f.yaml:1: "ture" is not true or false`},
		{"hosts: x\n", `f.yaml:1: "x" is not a list, such as [a, b]`},
		{"hosts: {x: y}\n", "f.yaml:1: this is to be a list"},
		{"policy: las\ntls: true\n", `f.yaml:2: "true" is not keys with values`},
		{"policy: las\ncpus: -1\n", "f.yaml:2: cpus: "},
		{"gpu_hour_cost: -2\n", "f.yaml:1: gpu_hour_cost: "},
		{"timezone: CET\n", `f.yaml:1: timezone: "CET" is not an offset such as +01:00`},
		{"log_level: loud\n", "f.yaml:1: log_level: unknown log level"},
		{"tls:\n  cert: a.pem\n", "f.yaml:1: tls: give cert and key"},
		{"tls:\n  cert: a\n  key: b\n  self_signed: true\n", "f.yaml:4: tls: self_signed"},
		{"tls: {certificate: a}\n", `f.yaml:1: unknown key "certificate"`},
		{"queues:\n  - {name: a}\n  - {name: b, parent: c}\n", `f.yaml:3: queue "b": unknown parent "c"`},
		{"queues:\n  - {name: a}\n  - name: b\n    children:\n      - {name: d, guarantee: 4, limit: 2}\n",
			"f.yaml:5: "},
		{"queues: [{name: a}, {name: a}]\n", `queue "a" is defined twice`},
		{"queues: [{name: a}]\nmembers:\n  a: {}\n  b: {}\n", `f.yaml:4: members: b: unknown queue "b"`},
		{"queues: [{name: a}]\npartitions:\n  - {name: p, queues: [b]}\n", "f.yaml:3: partitions: p: p: unknown queue"},
		{"partitions:\n  - {name: p}\n  - {name: p}\n", `"p" is defined twice`},
		{"partitions:\n  - {name: p, tiers: [critcal]}\n", `did you mean "critical"?`},
	} {
		_, err := ReadServe("f.yaml", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q:\n got  %v\n want ... %s", c.text, err, c.want)
		}
	}
}

// Two configurations are compared setting by setting; those that need a restart are marked, and the files of a
// certificate belong to the certificate.
func TestCompare(t *testing.T) {
	read := func(text string) *Serve {
		c, err := ReadServe("f.yaml", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := read("policy: fifo\ntimezone: '-02:30'\nlisten: none\ntls: {cert: a, key: b}\nqueues: [{name: a, guarantee: 1}, {name: b, limit: 2.5, windows: [{days: mon-tue, from: '07:00', to: '22:00', guarantee: 2}]}]\nmembers: {a: {users: [ann]}}\n")
	now := read("policy: las\nlisten: 0.0.0.0:1\ntls: {cert: c, key: b}\nqueues: [{name: a, guarantee: 2, weight: 3}, {name: c}]\nkill_wait: 3s\nadmins: {groups: [wheel]}\n")
	var got []string
	for _, c := range Compare(old, now) {
		got = append(got, fmt.Sprintf("%s: %s -> %s %v", c.Key, c.Old, c.New, c.Live))
	}
	want := []string{"policy: fifo -> las true", "kill_wait: 0s -> 3s true",
		"queues.a: guarantee 1 -> guarantee 2, weight 3 true", "queues.c:  -> (nothing) true",
		"admins: nobody -> groups wheel true", "tls.cert: a -> c true", "listen: none -> 0.0.0.0:1 false",
		"queues.b: limit 2.5, window mon tue 07:00-22:00 guarantee 2 ->  true", "timezone: -02:30 ->  true",
		"members.a: users ann ->  true"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := Compare(old, old); len(same) > 0 {
		t.Errorf("against itself: %v", same)
	}
	plain := read("policy: fifo\n")
	for _, c := range Compare(plain, old) {
		if strings.HasPrefix(c.Key, "tls") && c.Live {
			t.Errorf("%+v: TLS begins with a restart", c)
		}
	}
	next := read("tls: {self_signed: true}\nlisten: 0.0.0.0:1\nhosts: [x]\n")
	next.KeepStart(old)
	if next.Cert != "a" || next.SelfSigned || next.Listen != "none" || len(next.Hosts) != 1 {
		t.Errorf("what counts only at a start changed: %+v", next)
	}
}

// The documentation's table lists exactly the keys of the file.
func TestKeysDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| key | flag |")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows, keys []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)[`.]").FindAllStringSubmatch(table, -1) {
		if !slices.Contains(rows, m[1]) {
			rows = append(rows, m[1])
		}
	}
	f := reflect.TypeOf(serveFile{})
	for i := range f.NumField() {
		keys = append(keys, f.Field(i).Tag.Get("yaml"))
	}
	slices.Sort(rows)
	slices.Sort(keys)
	if !slices.Equal(rows, keys) {
		t.Errorf("docs/reference/config.md lists %v; the file has %v", rows, keys)
	}
}

func FuzzServe(f *testing.F) {
	f.Add("policy: las\nqueues: [{name: a, children: [{name: b}]}]\nstop: {standard: {how: kill}}\ntls: {cert: a, key: b}\n")
	f.Add("partitions: [{name: p, tiers: [critical]}]\nmembers: {a: {}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ReadServe("fuzz.yaml", strings.NewReader(text))
		if err == nil && len(Compare(c, c)) > 0 {
			t.Error("a configuration differs from itself")
		}
	})
}
