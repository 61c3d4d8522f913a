package gpu

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// simulated GPUs are held and given back like real ones. Nothing runs on them,
// so they report no utilisation, memory, power or temperature, except what
// somebody writes down that they are to play.
type simulated struct {
	devices     []Device
	faults, use string
}

// Simulated plays n GPUs of a model. They are unwell as the file of faults
// says: one line for each, its index and why ("1 fell off the bus"); and they
// play at computing as the file of use says: index, percent, and if wanted the
// MiB of memory in use, and a process with its MiB of it ("1 85 40000 4711 2000"). A file need not be there; lines that are
// none are passed over.
func Simulated(n int, model cluster.GPUModel, faults, use string) Source {
	s := &simulated{faults: faults, use: use}
	for i := range n {
		s.devices = append(s.devices, Device{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Name: model.Name, Model: model.Name,
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
			d.Instances = append(d.Instances, Instance{in, fmt.Sprintf("MIG-simulated-%d-%s-%d", i, in.Profile, in.Start)})
		}
		d.MIG = true
		src.Devices()[i] = d
	}
}

func (s *simulated) Devices() []Device { return s.devices }
func (s *simulated) Close() error      { return nil }

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
