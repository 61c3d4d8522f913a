package policy

import (
	"strings"
	"testing"
)

func TestMuriKnobs(t *testing.T) {
	for text, want := range map[string]string{
		"muri:order=x": "unknown order", "muri:group=5": "want 1 to 4", "muri:group=0": "want 1 to 4",
		"muri:keep=101": "want 0 to 100", "muri:round=0s": "in rounds",
	} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	p, err := New("muri:order=s,group=3,keep=0,round=1m")
	if err != nil || p.Name() != "muri:group=3,keep=0,order=s,round=1m" || !p.Traits().Preempts {
		t.Errorf("%v, %v", p, err)
	}
}
