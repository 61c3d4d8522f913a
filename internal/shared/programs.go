package shared

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Programs are programs of this repository that tests build and run. They are built once, when the first test
// needs one.
type Programs struct {
	Dir    string   // their folder; created if it is empty
	Plain  []string // folders below cmd
	Static []string // likewise, for those that make build builds without C

	once sync.Once
	err  error
}

// Path is the path of a program.
func (p *Programs) Path(t testing.TB, name string) string {
	t.Helper()
	p.once.Do(func() {
		Reads(t, root())
		p.err = p.build()
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return filepath.Join(p.Dir, name)
}

// Remove removes the programs.
func (p *Programs) Remove() {
	if p.Dir != "" {
		_ = os.RemoveAll(p.Dir)
	}
}

func (p *Programs) build() (err error) {
	if p.Dir == "" {
		if p.Dir, err = os.MkdirTemp("", "muster-programs"); err != nil {
			return err
		}
	}
	for env, names := range map[string][]string{"CGO_ENABLED=0": p.Static, "": p.Plain} {
		if len(names) == 0 {
			continue
		}
		args := []string{"build", "-o", p.Dir + string(filepath.Separator)}
		for _, name := range names {
			args = append(args, "./cmd/"+name)
		}
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root(), os.Environ()
		if env != "" {
			cmd.Env = append(cmd.Env, env)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	return nil
}

// root is the repository's folder.
func root() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(self), "..", "..")
}
