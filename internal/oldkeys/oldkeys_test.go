package oldkeys

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The records in testdata are of the version before names were numbered, with a value in each field. Each key
// that was renamed since is in one of them; a record with the new names stays unchanged.
func TestRenamed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v, %v", files, err)
	}
	found := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kind := Kind(strings.TrimSuffix(filepath.Base(name), ".json"))
		now, err := Translate(kind, 1, text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Translate(kind, 1, now); err != nil || !bytes.Equal(again, now) {
			t.Errorf("%s changes again: %v", name, err)
		}
		if same, err := Translate(kind, Current, text); err != nil || !bytes.Equal(same, text) {
			t.Errorf("%s changes though it is of this version: %v", name, err)
		}
		var before, after any
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(now, &after) != nil {
			t.Fatal(name)
		}
		differ(kind, before, after, found)
	}
	for _, k := range renamed {
		if !found[string(k.in)+"."+k.old+" "+k.new] {
			t.Errorf("no record under testdata has %s.%s", k.in, k.old)
		}
	}
}

// differ records which keys have another name in the second of two records with the same content.
func differ(kind Kind, before, after any, found map[string]bool) {
	switch b := before.(type) {
	case []any:
		for i := range b {
			differ(kind, b[i], after.([]any)[i], found)
		}
	case map[string]any:
		a := after.(map[string]any)
		for _, k := range renamed {
			_, was := b[k.old]
			_, stays := a[k.old]
			if was && !stays && k.in == kind && a[k.new] != nil {
				found[string(kind)+"."+k.old+" "+k.new] = true
			}
		}
		for key, inner := range within[kind] {
			name := key
			for _, k := range renamed {
				if k.in == kind && k.old == key {
					name = k.new
				}
			}
			if b[key] != nil {
				differ(inner, b[key], a[name], found)
			}
		}
	}
}

// Only what was renamed since a record was written is translated.
func TestRenamedSince(t *testing.T) {
	const text = `{"over":true,"progress":{"foretold":true}}`
	for names, want := range map[int]string{1: `{"over_memory":true,"progress":{"predicted":true}}`,
		2: `{"over":true,"progress":{"predicted":true}}`, 3: text} {
		if now, err := Translate(Info, names, []byte(text)); err != nil || string(now) != want {
			t.Errorf("written with %d: %s, %v; want %s", names, now, err, want)
		}
	}
}

func TestNewer(t *testing.T) {
	var v struct{ A int }
	if err := Unmarshal(Job, []byte(`{"names":1000,"a":3}`), &v); err != nil || v.A != 3 {
		t.Errorf("%v, %v", v, err)
	}
	for text, want := range map[string]int{`{}`: 1, `{"names":7}`: 7, `{"names":-1}`: 1} {
		if n, err := Of([]byte(text)); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	if _, err := Of([]byte(`[`)); err == nil {
		t.Error("what is no JSON has a number")
	}
}
