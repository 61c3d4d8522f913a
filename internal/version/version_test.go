package version

import (
	"os"
	"strings"
	"testing"
)

// The changelog begins with the version that the programs report, has at most sixty lines for each version, and
// uses the usual groups.
func TestChangelog(t *testing.T) {
	data, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "\n## ")
	if len(parts) < 2 || !strings.HasPrefix(parts[1], Release+"\n") && !strings.HasPrefix(parts[1], Release+" ") {
		t.Fatalf("CHANGELOG.md does not begin with %s", Release)
	}
	for _, p := range parts[1:] {
		head, _, _ := strings.Cut(p, "\n")
		if n := strings.Count(p, "\n"); n > 60 {
			t.Errorf("CHANGELOG.md, %s: %d lines; at most 60", head, n)
		}
		for line := range strings.SplitSeq(p, "\n") {
			group, ok := strings.CutPrefix(line, "### ")
			if ok && group != "Added" && group != "Changed" && group != "Fixed" {
				t.Errorf("CHANGELOG.md, %s: a group %q; Added, Changed or Fixed", head, group)
			}
		}
	}
}

func TestString(t *testing.T) {
	v := Info{Version: "0.1.0", Commit: "2ad91d61b0c4", Changed: true, Go: "go1.26.8", System: "linux/amd64"}
	if got, want := v.String(), "0.1.0, commit 2ad91d61b0c4 with changes, go1.26.8, linux/amd64"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Read(); got.Version != Release || got.Go == "" || got.System == "" {
		t.Errorf("this program is %+v", got)
	}
}
