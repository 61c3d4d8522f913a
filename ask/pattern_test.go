package ask

import "testing"

func TestExpandPattern(t *testing.T) {
	n := FileNames{Job: 12, Array: 10, Index: 3, User: "ann", JobName: "train", Node: "box", Task: 1, Restart: 2}
	for in, want := range map[string]string{"slurm-%j.out": "slurm-12.out", "%A_%a": "10_3", "%4j": "0012",
		"%A_%3a": "10_003", "%x-%u-%N-%n-%t-%r-%s": "train-ann-box-0-1-2-batch", "%%j": "%j",
		`\%j`: "%j", "%q%": "%q%", "%99j": "0000000012", "%b": "3", "%J": "12", "%": "%", "%12": "%12", "": ""} {
		if got := ExpandPattern(in, n); got != want {
			t.Errorf("ExpandPattern(%q) = %q; want %q", in, got, want)
		}
	}
	if got := ExpandPattern("%A_%a", FileNames{Job: 5}); got != "5_4294967294" {
		t.Errorf("no array: %q", got)
	}
}

func FuzzExpandPattern(f *testing.F) {
	f.Add("%A_%4a.%x")
	f.Fuzz(func(_ *testing.T, s string) { ExpandPattern(s, FileNames{Job: 1, JobName: "x"}) })
}
