//go:build linux

package devices

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
)

// FaultsFile, in the folder of the state, says which simulated GPUs are unwell.
const FaultsFile = "simulated-faults"

// UseFile, likewise, says what simulated GPUs play to compute.
const UseFile = "simulated-use"

// cutFile, likewise, has the MIG instances that were made on simulated GPUs.
const cutFile = "simulated-mig"

// Found is what a machine schedules.
type Found struct {
	Source gpu.Source
	GPUs   []show.GPU
	Spec   cluster.Spec
	Notes  []string // for the operator
}

// Misused says that a flag has a value that it cannot have.
type Misused struct{ error }

func misused(format string, args ...any) error { return Misused{fmt.Errorf(format, args...)} }

// Share decides how the GPUs are shared: as the configuration says, where that is possible.
func (d *Found) Share(conf *config.Sharing, state string) error {
	if conf.MIG != "static" && len(d.GPUs) > 0 && d.GPUs[0].Simulated {
		if err := gpu.Kept(d.Source, filepath.Join(state, cutFile)); err != nil {
			return err
		}
		d.GPUs = Describe(d.Source.Devices())
	}
	d.Spec.MinSpeed, d.Spec.MIG = conf.MinSpeed, cluster.MIGWay(slices.Index(cluster.MIGWays, conf.MIG))
	_, err := exec.LookPath(conf.Program)
	model, _ := d.Spec.Model(d.Spec.Nodes[0].Model)
	switch limits := model.MPSLimits(); {
	case conf.Shares == "mps" && err != nil:
		return fmt.Errorf("sharing: shares: mps: %w (it comes with NVIDIA's driver)", err)
	case conf.Shares == "mps" && !limits:
		d.Notes = append(d.Notes,
			fmt.Sprintf("sharing: shares: mps: on %s, as on all GPUs before Volta, MPS enforces neither a share's memory nor its compute", model.Name))
		d.Spec.Sharing = cluster.MPS
	case conf.Shares == "mps", conf.Shares == "auto" && limits && err == nil && len(d.GPUs) > 0 && !d.GPUs[0].Simulated:
		d.Spec.Sharing = cluster.MPS
	}
	return nil
}

// NeverSuspended says that the rules suspend jobs where their memory would be in the way.
func NeverSuspended(rules *[3]engine.StopRule, spec *cluster.Spec) []string {
	where, why := "on a GPU", ""
	switch model, _ := spec.Model(spec.Nodes[0].Model); {
	case spec.Sharing == cluster.MPS:
		why = "GPUs are shared under MPS (sharing: shares: time-slicing would let them be)"
	case spec.MIG == cluster.DynamicMIG && model.MIG():
		why = "sharing.mig is dynamic"
	case spec.MIG == cluster.InstancesMIG && model.MIG():
		where, why = "on a MIG instance", "sharing.mig is instances: its memory would keep others from being made"
	}
	if why == "" || !slices.ContainsFunc(rules[:], func(r engine.StopRule) bool { return r.How == engine.Suspend }) {
		return nil
	}
	return []string{"stop: how: suspend: no job is suspended " + where + ", but asked for a checkpoint, because " + why}
}

// Open finds the GPUs that --gpus asks for: simulated ones, all real ones, or some of them. An error may be Misused.
func Open(flag, state string, cpus int) (*Found, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	host, _, _ = strings.Cut(host, ".")
	if cpus < 1 || cpus > 1<<16 {
		return nil, misused("--cpus %d: between 1 and %d", cpus, 1<<16)
	}
	node := cluster.Node{Name: host, CPU: int64(cpus) * 1000, RAM: memory()}
	if text, ok := strings.CutPrefix(flag, "sim:"); ok {
		return simulatedDevices(flag, text, state, node)
	}
	source, err := gpu.Open()
	if err != nil {
		return nil, fmt.Errorf(
			"no GPUs: %w; muster serve --gpus sim:8xH100-80GB plays some, the jobs are real all the same", err)
	}
	d, err := realDevices(source, flag, node)
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return d, nil
}

func simulatedDevices(flag, text, state string, node cluster.Node) (*Found, error) {
	text, mig, cut := strings.Cut(text, "/")
	spec, err := cluster.ParseShort("1x" + text)
	if err != nil {
		return nil, misused("--gpus %s: %w", flag, err)
	}
	node.Model, node.GPUs = spec.Nodes[0].Model, spec.Nodes[0].GPUs
	model, _ := spec.Model(node.Model)
	if node.MIG = cluster.Unpartitioned; cut {
		node.MIG = mig
	}
	geometry, _, err := node.Geometry(&model)
	if err != nil {
		return nil, misused("--gpus %s: %w", flag, err)
	}
	spec.Nodes = []cluster.Node{node}
	d := &Found{Source: gpu.Simulated(node.GPUs, model, filepath.Join(state, FaultsFile),
		filepath.Join(state, UseFile)), Spec: *spec}
	gpu.Partitioned(d.Source, geometry)
	d.GPUs = Describe(d.Source.Devices())
	return d, nil
}

func realDevices(source gpu.Source, flag string, node cluster.Node) (*Found, error) {
	found := source.Devices()
	if flag != "" {
		var err error
		if found, err = gpu.Choose(found, flag); err != nil {
			return nil, misused("--gpus: %w", err)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the driver is there, but no GPU; muster serve --gpus sim:8xH100-80GB plays some")
	}
	taken, model, islands, notes := gpu.Node(found)
	node.Model, node.GPUs, node.Islands = model.Name, len(taken), islands
	return &Found{Source: source, GPUs: Describe(taken), Notes: notes,
		Spec: cluster.Spec{Models: []cluster.GPUModel{model}, Nodes: []cluster.Node{node}}}, nil
}

// memory is the machine's RAM in MiB; 0: unknown.
func memory() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit) >> 20
}
