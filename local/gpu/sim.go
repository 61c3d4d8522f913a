package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// simulated GPUs are held and given back like real ones. Nothing runs on them,
// so they report no utilisation, memory, power or temperature, except what
// somebody writes down that they are to play.
type simulated struct {
	devices     []Device
	model       cluster.GPUModel
	mu          sync.Mutex   // of cut
	cut         [][]Instance // by device: as it is now
	faults, use string
	kept        string // where cut is kept, as a driver keeps instances
}

// Simulated plays n GPUs of a model. They are unwell as the file of faults
// says: one line for each, its index and why ("1 fell off the bus"); and they
// play at computing as the file of use says: index, percent, and if wanted the
// MiB of memory in use, and a process with its MiB of it ("1 85 40000 4711 2000"). A file need not be there;
// lines that are none are passed over.
func Simulated(n int, model cluster.GPUModel, faults, use string) Source {
	s := &simulated{faults: faults, use: use, model: model, cut: make([][]Instance, n)}
	for i := range n {
		s.devices = append(s.devices,
			Device{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Name: model.Name, Model: model.Name,
				Memory: model.Memory, Minor: -1, Simulated: true})
	}
	return s
}

// Partitioned has simulated GPUs be in MIG mode as a node's geometry says.
func Partitioned(src Source, geometry [][]cluster.Instance) {
	for i, d := range src.Devices() {
		if i >= len(geometry) || geometry[i] == nil {
			continue
		}
		for _, in := range geometry[i] {
			if in.Profile != cluster.AsNeeded {
				d.Instances = append(d.Instances, simulatedInstance(i, in))
			}
		}
		if s, ok := src.(*simulated); ok {
			s.cut[i] = d.Instances
		}
		d.MIG = true
		src.Devices()[i] = d
	}
}

func (s *simulated) Devices() []Device { return s.devices }
func (s *simulated) Close() error      { return nil }

func simulatedInstance(gpu int, in cluster.Instance) Instance {
	return Instance{in, fmt.Sprintf("MIG-simulated-%d-%s-%d", gpu, in.Profile, in.Start)}
}

func (s *simulated) at(uuid string) int {
	return slices.IndexFunc(s.devices, func(d Device) bool { return d.UUID == uuid })
}

func (s *simulated) Make(uuid string, want cluster.Instance, inUse func(uuid string) bool) ([]Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.at(uuid)
	gone, there, err := inTheWay(&s.model, s.cut[i], want, inUse)
	if err != nil || there {
		return slices.Clone(s.cut[i]), err
	}
	var list []Instance
	for k, in := range s.cut[i] {
		if !slices.Contains(gone, k) {
			list = append(list, in)
		}
	}
	s.cut[i] = append(list, simulatedInstance(i, want))
	return slices.Clone(s.cut[i]), s.keep()
}

// keep writes down which instances there are.
func (s *simulated) keep() error {
	if s.kept == "" {
		return nil
	}
	geometry := make([][]cluster.Instance, len(s.cut))
	for i, list := range s.cut {
		for _, in := range list {
			geometry[i] = append(geometry[i], in.Instance)
		}
	}
	return os.WriteFile(s.kept, []byte(cluster.GeometryText(geometry)), 0o600)
}

// Kept has simulated GPUs have the instances that were made on them before, and keeps
// those that are made from now on, in a file.
func Kept(src Source, path string) error {
	s, ok := src.(*simulated)
	if !ok {
		return nil
	}
	s.kept = path
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n := cluster.Node{GPUs: len(s.devices), MIG: string(text)}
	geometry, _, err := n.Geometry(&s.model)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	Partitioned(s, geometry)
	return nil
}

func (s *simulated) Whole(uuid string, inUse func(uuid string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.at(uuid)
	if err := idle(s.cut[i], inUse); err != nil || s.cut[i] == nil {
		return err
	}
	s.cut[i] = nil
	return s.keep()
}

func (s *simulated) Exclusive(string, bool) error { return nil } // nothing runs on them

func (s *simulated) Sample() []Sample {
	list := make([]Sample, len(s.devices))
	f, err := os.Open(s.use)
	if err != nil {
		return list
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		word := strings.Fields(lines.Text())
		if len(word) < 2 {
			continue
		}
		i, err := strconv.Atoi(word[0])
		util, bad := strconv.ParseFloat(word[1], 64)
		if err != nil || bad != nil || i < 0 || i >= len(list) || !(util >= 0 && util <= 100) {
			continue
		}
		list[i].Utilisation = &util
		if len(word) < 3 {
			continue
		}
		if mib, err := strconv.ParseInt(word[2], 10, 64); err == nil && mib >= 0 && mib <= s.devices[i].Memory {
			list[i].MemoryUsed = &mib
		}
		if p, ok := playedProcess(word[3:]); ok {
			list[i].Processes = append(list[i].Processes, p)
		}
	}
	return list
}

// playedProcess reads a process that uses a GPU, and its MiB.
func playedProcess(word []string) (p Process, ok bool) {
	if len(word) < 2 {
		return p, false
	}
	pid, err := strconv.Atoi(word[0])
	mib, bad := strconv.ParseInt(word[1], 10, 64)
	return Process{PID: pid, Memory: &mib}, err == nil && bad == nil
}

func (s *simulated) Health(ctx context.Context, wait time.Duration) []string {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	bad := make([]string, len(s.devices))
	f, err := os.Open(s.faults)
	if err != nil {
		return bad
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		index, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(bad) {
			continue
		}
		if bad[i] = "simulated fault"; text != "" {
			bad[i] += ": " + text
		}
	}
	return bad
}
