// Package binaries builds the programs of a Kubernetes control plane, and helm, once, from their Go modules (the nested
// modules tools and helm of package controlplane) into the user's cache folder. It needs no library of Kubernetes.
package binaries

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/muster-gpu/muster/internal/shared"
)

// version is the version that the binaries report; it is the one in tools/go.mod.
const version = "v1.37.1"

// binary is a program of the control plane, with the package from which it is built.
type binary struct{ name, pkg string }

// programs are the binaries, the cheapest to build first.
var programs = []binary{
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok"},
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
}

// Helm returns the path of helm, which is built the first time (some minutes of processor time) from a
// module of its own, because it needs other versions of libraries.
func Helm(ctx context.Context, log func(format string, args ...any)) (string, error) {
	const at = "helm.sh/helm/v3/pkg/"
	minor := strings.Split(version, ".")[1]
	flags := fmt.Sprintf("-s -w -X %[1]slint/rules.k8sVersionMajor=1 -X %[1]slint/rules.k8sVersionMinor=%[2]s "+
		"-X %[1]schartutil.k8sVersionMajor=1 -X %[1]schartutil.k8sVersionMinor=%[2]s", at, minor)
	dir, err := built(ctx, "helm", "helm", flags, []binary{{"helm", "helm.sh/helm/v3/cmd/helm"}}, log)
	return filepath.Join(dir, "helm"), err
}

// Build makes sure that the binaries exist and returns their folder. The first time that takes some half an hour of
// processor time; a concurrent build waits for the first. The error has the output of what failed.
func Build(ctx context.Context, log func(format string, args ...any)) (string, error) {
	const v = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s",
		v, version, v, v, strings.Split(version, ".")[1])
	return built(ctx, "tools", "controlplane-"+version, flags, programs, log)
}

// built makes sure that programs of a nested module are built, and returns their folder in the user's cache, which is
// named after what they are and after the versions that the module asks for.
func built(ctx context.Context, module, name, flags string, list []binary, log func(string, ...any)) (string, error) {
	source, err := moduleDir(ctx, module)
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to keep %s: %w", name, err)
	}
	sum := sha256.Sum256(mod)
	dir := filepath.Join(cache, "muster", fmt.Sprintf("%s-%x", name, sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := shared.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, p := range list {
		to := filepath.Join(dir, p.name)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		log("building %s of %s (once; it is kept in %s)", p.name, name, dir)
		if err := build(ctx, source, flags, p.pkg, to); err != nil {
			return "", fmt.Errorf("%s, which tests need, cannot be built: %w", p.name, err)
		}
	}
	return dir, nil
}

func build(ctx context.Context, tools, flags, pkg, to string) error {
	c := exec.CommandContext(ctx, "go", "build", "-p", "2", "-trimpath", "-ldflags", flags, "-o", to+".new", pkg)
	c.Dir = tools
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("go build %s: %w\n%s", pkg, err, out[max(0, len(out)-4000):]),
			os.RemoveAll(to+".new"))
	}
	return os.Rename(to+".new", to)
}

// Root is the folder of Muster's repository, inside which this runs.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// moduleDir finds a nested module of package controlplane.
func moduleDir(ctx context.Context, name string) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "internal", "controlplane", name)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the programs for tests are built inside Muster's repository only: %w", err)
	}
	return dir, nil
}
