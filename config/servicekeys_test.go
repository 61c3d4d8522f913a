package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/serving/inss"
)

// TestServiceKeys: keys are read, and each mistake names its line and what would be right. Without a list everybody
// may use services; an empty one lets nobody in; a list whose entries are gone is an error.
func TestServiceKeys(t *testing.T) {
	_, hash := token.New()
	_, other := token.New()
	read := func(text string) (*Serve, error) {
		return ReadServe("f.yaml", strings.NewReader(strings.NewReplacer("HASH", hash, "OTHER", other).Replace(text)))
	}
	c, err := read("services:\n  period: 1s\n  keys:\n" +
		"    - {name: shop, hash: HASH, services: [a, b], rate: 2.5, tier: critical}\n" +
		"    - {name: lab, hash: " + strings.ToUpper(other) + ", services: ['*'], rate: 1, burst: 30}\n")
	if err != nil {
		t.Fatal(err)
	}
	shop, lab := c.Services.Keys[0], c.Services.Keys[1]
	if strings.Join(shop.Services, " ") != "a b" || shop.Rate != 2.5 || shop.Burst != 3 ||
		shop.Tier != cluster.Critical || lab.Services != nil || lab.Hash != other || lab.Burst != 30 ||
		lab.Tier != cluster.Standard {
		t.Errorf("%+v %+v", shop, lab)
	}
	for text, nilKeys := range map[string]bool{"policy: fifo\n": true, "services: {period: 1s}\n": true,
		"services: {keys: []}\n": false} {
		if c, err := read(text); err != nil || (c.Services.Keys == nil) != nilKeys || len(c.Services.Keys) > 0 {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	const head = "services:\n  keys:\n    - "
	for text, want := range map[string]string{
		"services:\n  keys:\n":                                                                       "f.yaml:2: services: keys: the list is missing",
		head + "{name: 'a b', hash: HASH, services: [a]}\n":                                          "f.yaml:3: services: keys: 0: name: ",
		head + "{name: a, hash: secret, services: [a]}\n":                                            "muster service key NAME makes both",
		head + "{name: a, hash: '" + token.Hash("") + "', services: [a]}\n":                          "which every caller has",
		head + "{name: a, hash: HASH}\n":                                                             "services: name those",
		head + "{name: a, hash: HASH, services: []}\n":                                               "services: name those",
		head + "{name: a, hash: HASH, services: [a, '*']}\n":                                         "beside others",
		head + "{name: a, hash: HASH, services: [a, a]}\n":                                           "there twice",
		head + "{name: a, hash: HASH, services: [a], rate: 0}\n":                                     "rate: 0 is not more than 0",
		head + "{name: a, hash: HASH, services: [a], rate: .nan}\n":                                  "rate: NaN",
		head + "{name: a, hash: HASH, services: [a], burst: 3}\n":                                    "only beside a rate",
		head + "{name: a, hash: HASH, services: [a], rate: 1, burst: 0}\n":                           "from 1 to",
		head + "{name: a, hash: HASH, services: [a], tier: critcal}\n":                               `did you mean "critical"?`,
		head + "{name: a, hash: HASH, services: [a], role: user}\n":                                  `unknown key "role"`,
		head + "{name: a, hash: HASH, services: [a], key: secret}\n":                                 `unknown key "key"`,
		head + "{name: a, hash: HASH, services: [a]}\n    - {name: a, hash: OTHER, services: [a]}\n": "f.yaml:4: ",
		head + "{name: a, hash: HASH, services: [a]}\n    - {name: b, hash: HASH, services: [a]}\n":  "a has the same name or hash",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v, want %s", text, err, want)
		}
	}
}

// TestServiceWeights: the daemon's configuration names a file of weights, which is read and checked with it; a reload
// says that another file, or another content, needs a restart.
func TestServiceWeights(t *testing.T) {
	agents, err := inss.ReadAgents(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := agents.Write("a test")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, wrong := filepath.Join(dir, "w.json"), filepath.Join(dir, "wrong.json")
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(wrong, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	read := func(path string) (*Serve, error) {
		return ReadServe("f.yaml", strings.NewReader("services: {period: 1s,\n  weights: '"+path+"'}\n"))
	}
	c, err := read(file)
	if err != nil || string(c.Services.Learnt) != string(text) {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	d := Compare(c, now)
	if len(d) != 1 || d[0].Key != "services.weights" || d[0].Live {
		t.Errorf("%+v", d)
	}
	if now.KeepStart(c); string(now.Services.Learnt) != string(text) {
		t.Error("a reload takes over other weights")
	}
	for path, want := range map[string]string{"w.json": `"w.json" is not an absolute path`, dir: "is a directory",
		filepath.Join(dir, "none"): "no such file", wrong: "muster learn inss-rl writes such a file"} {
		if _, err := read(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "f.yaml:2: services: weights: ") {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestNewServiceKey: the line of a new key can be read, and its hash is the key's.
func TestNewServiceKey(t *testing.T) {
	for _, services := range [][]string{{"a", "b c"}, {"*"}} {
		key, line, err := NewServiceKey("shop", services)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ReadServe("f.yaml", strings.NewReader("services:\n  keys:\n    "+line+"\n"))
		if err != nil || c.Services.Keys[0].Hash != token.Hash(key) || c.Services.Keys[0].Name != "shop" ||
			(c.Services.Keys[0].Services == nil) != (services[0] == "*") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, _, err := NewServiceKey("shop", nil); err == nil || !strings.Contains(err.Error(), "services: name those") {
		t.Error(err)
	}
}

// TestServiceKeysChange: what changes of keys counts at a reload, ports do not; hashes are not shown in full.
func TestServiceKeysChange(t *testing.T) {
	_, hash := token.New()
	read := func(text string) *Serve {
		c, err := ReadServe("f.yaml", strings.NewReader(strings.ReplaceAll(text, "HASH", hash)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := read("services: {ports: 22000-22001, keys: [{name: a, hash: HASH, services: [a]}]}")
	now := read("services: {period: 2s, keys: [{name: a, hash: HASH, services: ['*'], rate: 3}]}")
	live := map[string]bool{}
	for _, d := range Compare(old, now) {
		live[d.Key] = d.Live
		if strings.Contains(d.Old+d.New, hash) {
			t.Errorf("%s -> %s", d.Old, d.New)
		}
	}
	if len(live) != 3 || !live["services.keys.a"] || live["services.ports"] || live["services.period"] {
		t.Errorf("%v", live)
	}
	now.KeepStart(old)
	if s := &now.Services; s.First != 22000 || s.Period != old.Services.Period || s.Keys[0].Rate != 3 {
		t.Errorf("%+v", s)
	}
	got := Compare(read("services: {keys: []}"), read("{}"))
	if len(got) != 1 || got[0].Old != "none: nobody is let in" {
		t.Errorf("%+v", got)
	}
}
