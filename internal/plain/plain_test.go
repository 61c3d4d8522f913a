package plain

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Characters that terminals act on are escaped; letters of all languages, joined emojis and replacement
// characters stay.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"train 1":                    "train 1",
		"训练 größe é 👩‍🔬 \ufffd":      "训练 größe é 👩‍🔬 \ufffd",
		"\x1b[31mred":                `\x1b[31mred`,
		"\x1b]0;title\x07":           `\x1b]0;title\x07`,
		"a\nb\tc\rd":                 `a\nb\tc\rd`,
		"\u202egpj.exe":              `\u202egpj.exe`,
		"\u009b31m\u0085":            `\x9b31m\x85`,
		"a\u2028b\u2029\u2066\ufeff": `a\u2028b\u2029\u2066\ufeff`,
		"\x00\x7f":                   `\x00\x7f`,
		"\xff\xc2":                   `\xff\xc2`,
		"\U000e0041":                 `\U000e0041`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %q, not %q", text, got, want)
		}
	}
	if got := Lines("a\n\tb\x1b"); got != "a\n\tb"+`\x1b` {
		t.Errorf("lines are shown as %q", got)
	}
}

// A value is cleaned wherever it contains text.
func TestClean(t *testing.T) {
	type inner struct {
		Texts []string
		Any   any
		bad   string
	}
	type outer struct {
		Text  string
		Ptr   *string
		In    []inner
		Map   map[string][]string
		Bytes []byte
	}
	e, clean := "\x1b", `\x1b`
	p := e
	v := outer{e, &p, []inner{{[]string{e}, map[string]any{e: []any{e, 1.0, nil}}, e}}, map[string][]string{e: {e}},
		[]byte(e)}
	Clean(&v)
	q := clean
	if want := (outer{clean, &q, []inner{{[]string{clean}, map[string]any{clean: []any{clean, 1.0, nil}}, e}},
		map[string][]string{clean: {clean}}, []byte(e)}); !reflect.DeepEqual(v, want) {
		t.Errorf("%+v, not %+v", v, want)
	}
}

// Whatever the text, the result has nothing that a terminal acts on, and clean text stays unchanged.
func FuzzText(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\n")
	f.Add("plain")
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		for _, r := range got {
			if r != utf8.RuneError && acts(r) {
				t.Errorf("%q is shown as %q", s, got)
			}
		}
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\t\x1b\u009b") {
			t.Errorf("%q is shown as %q", s, got)
		}
		if _, ok := Acts(s); !ok && utf8.ValidString(s) && got != s {
			t.Errorf("%q, which is harmless, is shown as %q", s, got)
		}
		if again := Text(got); again != got {
			t.Errorf("%q is shown as %q, and that as %q", s, got, again)
		}
	})
}
