package main

import (
	"context"
	"strings"
	"testing"
)

// Where there are no recorded traces, the answer says what is wanted.
func TestResultsWithoutTraces(t *testing.T) {
	for _, dir := range []string{t.TempDir() + "/none", "results_test.go"} {
		_, _, err := muster(t, context.Background(), "results", "--traces", dir)
		if err == nil || !strings.Contains(err.Error(), "--traces: ") || !strings.Contains(err.Error(), "want the directory with the recorded traces") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
