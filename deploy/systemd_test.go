package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits: systemd finds nothing wrong with its units.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	names, err := filepath.Glob("systemd/*")
	if err != nil || len(names) != 3 {
		t.Fatalf("%v %v", names, err)
	}
	dir, args := t.TempDir(), []string{"verify", "--recursive-errors=no"}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// what it starts must exist
		there := strings.NewReplacer("/usr/local/bin/muster-gateway", "/bin/true", "/usr/local/bin/muster", "/bin/true")
		text = []byte(there.Replace(string(text)))
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
