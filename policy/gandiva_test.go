package policy

import (
	"strings"
	"testing"
)

func TestOverheadKnob(t *testing.T) {
	for text, good := range map[string]bool{"0": true, "0.05": true, "1": true, "0.0001": false, "-0.1": false,
		"1.5": false, "much": false, "NaN": false} {
		if _, err := New("gandiva:overhead=" + text); (err == nil) != good || err != nil &&
			!strings.Contains(err.Error(), "overhead=") {
			t.Errorf("overhead=%s: %v", text, err)
		}
	}
}
