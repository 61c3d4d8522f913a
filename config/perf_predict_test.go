package config

import (
	"strings"
	"testing"
)

// What a table does not list is estimated if it says so, and how far that is off is
// said.
func TestPredictFile(t *testing.T) {
	text := "pairs: {a/a: 0.5, a/b: 0.5, b/a: 0.5, b/b: 0.5, c/a: 0.5}\n"
	plain, err := ReadPerf("f", []byte(text))
	if err != nil || len(plain.Pairs) != 5 || strings.Contains(PerfText(plain), "estimated") {
		t.Errorf("%d pairs, %s, %v", len(plain.Pairs), PerfText(plain), err)
	}
	filled, err := ReadPerf("f", []byte(text+"predict: true\n"))
	if err != nil || len(filled.Pairs) <= 5 || !strings.Contains(PerfText(filled), " pairs are estimated, as known ones would be off by 0.00 in the mean") {
		t.Errorf("%d pairs, %s, %v", len(filled.Pairs), PerfText(filled), err)
	}
}
