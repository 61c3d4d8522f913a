package binaries

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuild builds what the tests of kube and deploy need, unless it is built already.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("a control plane takes minutes to build")
	}
	dir, err := Build(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "kube-apiserver"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), version) {
		t.Errorf("%s, %v", out, err)
	}
	helm, err := Helm(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(helm, "version", "--short").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "v3") {
		t.Errorf("%s, %v", out, err)
	}
}
