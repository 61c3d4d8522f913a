package shared

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// sharedPrograms is set by make test: a folder in which packages leave the programs that they build, for the others.
const sharedPrograms = "MUSTER_PROGRAMS"

// Programs are programs of this repository that tests build and run. They are built once, when the first test
// needs one.
type Programs struct {
	Dir    string   // their folder; if it is empty it is created, or that of MUSTER_PROGRAMS
	Plain  []string // folders below cmd
	Static []string // likewise, for those that make build builds without C

	once  sync.Once
	err   error
	stays bool // the folder is others', too
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
	if p.Dir != "" && !p.stays {
		_ = os.RemoveAll(p.Dir)
	}
}

func (p *Programs) build() (err error) {
	switch dir := os.Getenv(sharedPrograms); {
	case p.Dir != "":
	case dir != "":
		p.Dir, p.stays = dir, true
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		unlock, err := Lock(filepath.Join(dir, "lock"))
		if err != nil {
			return err
		}
		defer unlock()
	default:
		if p.Dir, err = os.MkdirTemp("", "muster-programs"); err != nil {
			return err
		}
	}
	for env, names := range map[string][]string{"CGO_ENABLED=0": p.Static, "": p.Plain} {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, err := os.Stat(filepath.Join(p.Dir, name))
			return err == nil
		})
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
