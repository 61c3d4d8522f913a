package config

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/perf"
)

// What a table does not list is estimated on request, with a statement of the error.
func TestPredictFile(t *testing.T) {
	text := "pairs: {a/a: 0.5, a/b: 0.5, b/a: 0.5, b/b: 0.5, c/a: 0.5}\n"
	plain, err := ReadPerf("f", []byte(text))
	if err != nil || len(plain.Pairs) != 5 || strings.Contains(PerfText(plain), "estimated") {
		t.Errorf("%d pairs, %s, %v", len(plain.Pairs), PerfText(plain), err)
	}
	filled, err := ReadPerf("f", []byte(text+"predict: true\n"))
	if err != nil || len(filled.Pairs) <= 5 ||
		!strings.Contains(PerfText(filled), " pairs are estimated, as known ones would be off by 0.00 in the mean") {
		t.Errorf("%d pairs, %s, %v", len(filled.Pairs), PerfText(filled), err)
	}
}

// Pairs of job models of which none was measured are estimated from what they use; stating a use without
// prediction, or more than a whole GPU, is an error.
func TestPredictUse(t *testing.T) {
	text := "use: {a: {compute: 0.6, memory: 0.7}, b: {compute: 0.5, memory: 0.6}}\n"
	table, err := ReadPerf("f", []byte(text+"predict: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if v := table.Pairs[perf.Pair{"a", "b"}]; v != 769_231 ||
		!strings.Contains(PerfText(table), "4 pairs are estimated, which cannot be checked") ||
		!strings.Contains(PerfText(table), "of job models without a known pair: 4 by roofline") {
		t.Errorf("%d: %s", v, PerfText(table))
	}
	for _, c := range [][2]string{{text, "predict: true"},
		{"use: {a: {compute: 1.2}}\npredict: true\n", "use of a: compute 1.2"},
		{"use: {a: {}}\npredict: true\n", "use of a"},
		{"use: {a: {sm: 1}}\npredict: true\n", `"sm"`}} {
		if _, err := ReadPerf("f", []byte(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v; want %q", c[0], err, c[1])
		}
	}
}

// The settings of time slicing are read, and invalid ones refused.
func TestTimeSlicing(t *testing.T) {
	table, err := ReadPerf("f", []byte("time_slicing: {switch: 0.02, duty: {a: 0.5, b: 1}, processes: {b: 2}}\n"))
	if err != nil || table.Slicing.Switch != 20_000 || table.Slicing.Duty["a"] != 500_000 ||
		table.Slicing.Processes["b"] != 2 || !strings.Contains(PerfText(table), "2 duties") {
		t.Errorf("%+v, %v", table, err)
	}
	for text, want := range map[string]string{"switch: 0.2": "between 0 and 0.1", "duty: {a: 1.5}": "duty of a: 1.5",
		"duty: {a: 0}": "duty of a", "duty: {a: 1}, processes: {b: 2}": "processes of b: 2",
		"duty: {a: 1}, processes: {a: 0}": "processes of a: 0", "slice: 1": `"slice"`} {
		if _, err := ReadPerf("f", []byte("time_slicing: {"+text+"}\n")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
