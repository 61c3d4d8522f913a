package ask

import "testing"

func TestParseSignal(t *testing.T) {
	for in, want := range map[string]struct {
		name   string
		number int
	}{"USR1": {"USR1", 10}, "sigterm": {"TERM", 15}, "12": {"USR2", 12}, "60": {"60", 60}, "WINCH": {"WINCH", 28},
		"": {}, "0": {}, "65": {}, "-9": {}, "+9": {}, "URS1": {}} {
		name, number, err := ParseSignal(in)
		if name != want.name || number != want.number || (err != nil) != (want.name == "") {
			t.Errorf("ParseSignal(%q) = %q, %d, %v; want %v", in, name, number, err, want)
		}
	}
}

// The signal for checkpoints is validated at submission, not when it is needed.
func TestSubmissionSignal(t *testing.T) {
	for signal, ok := range map[string]bool{"": true, "USR2": true, "SIGUSR2": true, "12": true, "URS2": false} {
		_, err := (&Submission{Command: []string{"true"}, Signal: signal}).Job()
		if (err == nil) != ok {
			t.Errorf("signal %q: %v", signal, err)
		}
	}
}
