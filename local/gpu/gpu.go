// Package gpu knows this machine's GPUs: which there are, what they do at the
// moment, and whether they are well. Real ones are asked through NVIDIA's
// library (NVML), simulated ones are only played.
package gpu

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Device is a GPU as it was found.
type Device struct {
	Index     int // as nvidia-smi numbers them
	UUID      string
	Name      string // the vendor's
	Model     string // the cluster's name of the model
	Memory    cluster.MiB
	Minor     int  // of /dev/nvidiaN; -1: there is none
	MIG       bool // it is cut into MIG instances, or about to be
	Instances []Instance
	Slices    []cluster.MiB // memory of an instance of each of the model's profiles, as the driver says; 0: it does not
	Island    int           // GPUs of one island are joined by NVLink
	Simulated bool
}

// Instance is a MIG instance of a device.
type Instance struct {
	cluster.Instance
	UUID string
}

// Sample is what a GPU does at one instant. What the driver does not say is nil.
type Sample struct {
	Utilisation *float64 // percent
	MemoryUsed  *int64   // MiB
	Power       *float64 // watt
	Temperature *float64 // Celsius
	Energy      *float64 // joule since the driver was loaded
	Processes   []Process
	PerProcess  bool // the driver says what each process computes: one that is not listed computes nothing
}

// Process is a process that uses a GPU.
type Process struct {
	PID         int
	Memory      *int64   // MiB
	Utilisation *float64 // percent
}

// Source is the GPUs of a machine. Sample and Health answer in the order of
// Devices; they may be called at the same time, each by one goroutine.
type Source interface {
	Devices() []Device
	Sample() []Sample
	// Health says what is wrong with each GPU; "": nothing. It waits for news,
	// but not longer than wait.
	Health(ctx context.Context, wait time.Duration) []string
	// Make makes a MIG instance and returns all that the GPU has then; those in its
	// way are destroyed, unless one is in use, which is an error. One that exists
	// stays. The GPU is put into MIG mode if it is not.
	Make(uuid string, want cluster.Instance, inUse func(uuid string) bool) ([]Instance, error)
	// Whole takes a GPU out of MIG mode; it is an error if an instance is in use.
	Whole(uuid string, inUse func(uuid string) bool) error
	// Exclusive lets one process only have a context on a GPU, as MPS' server should
	// (undo: again any number).
	Exclusive(uuid string, on bool) error
	Close() error
}

// Choose returns the devices that a list names by index or UUID (also the
// beginning of one), in the order of the devices.
func Choose(all []Device, list string) ([]Device, error) {
	chosen := map[int]bool{}
	for _, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		found := -1
		for i, d := range all {
			n, err := strconv.Atoi(word)
			if err == nil && n == d.Index || len(word) >= 8 && strings.HasPrefix(d.UUID, word) {
				if found >= 0 {
					return nil, fmt.Errorf("%q is the beginning of several UUIDs: write more of it", word)
				}
				found = i
			}
		}
		if found < 0 {
			return nil, fmt.Errorf("there is no GPU %q: this machine has %s", word, describe(all))
		}
		chosen[found] = true
	}
	var some []Device
	for i, d := range all {
		if chosen[i] {
			some = append(some, d)
		}
	}
	return some, nil
}

func describe(all []Device) string {
	var names []string
	for _, d := range all {
		names = append(names, fmt.Sprintf("%d (%s)", d.Index, d.UUID))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// ModelOf returns the cluster's model for a vendor's name and the memory that
// the driver reports, which is a little less than the nominal one. A GPU that
// is not known becomes a model of its own.
func ModelOf(name string, memory cluster.MiB) cluster.GPUModel {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' })
	var best cluster.GPUModel
	off := cluster.MiB(1) << 60
	for _, m := range cluster.Models() {
		family, _, _ := strings.Cut(m.Name, "-")
		for _, w := range words {
			d := max(m.Memory-memory, memory-m.Memory)
			if strings.EqualFold(w, family) && d < off && d*10 <= m.Memory {
				best, off = m, d
			}
		}
	}
	if best.Name == "" {
		var keep []string
		for _, w := range words {
			if !strings.EqualFold(w, "NVIDIA") && !strings.EqualFold(w, "Mock") {
				keep = append(keep, w)
			}
		}
		best.Name = fmt.Sprintf("%s-%dGB", strings.Join(keep, "-"), (memory+512)/1024)
	}
	best.Memory = memory
	return best
}

// model is the cluster's model of a device, with what the driver says of its instances.
func (d *Device) model() cluster.GPUModel {
	m := ModelOf(d.Name, d.Memory)
	for i := range min(len(d.Slices), len(m.Profiles)) { // the profiles are this model's own
		if d.Slices[i] > 0 {
			m.Profiles[i].Memory = d.Slices[i]
		}
	}
	return m
}

// Node describes devices as a node of a cluster: the devices that it takes, of
// the model of which there are most, and what the others are, in words.
func Node(devices []Device) (taken []Device, model cluster.GPUModel, islands int, left []string) {
	count := map[string]int{}
	name := ""
	for _, d := range devices {
		if count[d.Model]++; name == "" || count[d.Model] > count[name] {
			name = d.Model
		}
	}
	for _, d := range devices {
		switch {
		case d.Model != name:
			left = append(left, fmt.Sprintf(
				"GPU %d is a %s: one machine schedules GPUs of one model (choose with --gpus)", d.Index, d.Model))
		case len(taken) == cluster.MaxGPUsPerNode:
			left = append(left, fmt.Sprintf("GPU %d: at most %d GPUs are scheduled", d.Index, cluster.MaxGPUsPerNode))
		default:
			if len(taken) == 0 || d.Memory < model.Memory {
				model = d.model()
			}
			taken = append(taken, d)
		}
	}
	islands = groups(taken)
	if model.NVLink = islands < len(taken); !model.NVLink {
		model.NVSwitch = false
	}
	return taken, model, islands, left
}

// groups is the number of NVLink islands if they are of one size, side by side;
// 1 if the engine cannot describe them.
func groups(devices []Device) int {
	var sizes []int
	for i, d := range devices {
		if i == 0 || d.Island != devices[i-1].Island {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	seen := map[int]bool{}
	for i, d := range devices {
		if i > 0 && d.Island != devices[i-1].Island && seen[d.Island] {
			return 1 // not side by side
		}
		seen[d.Island] = true
	}
	for _, n := range sizes {
		if n != sizes[0] {
			return 1
		}
	}
	return max(1, len(sizes))
}
