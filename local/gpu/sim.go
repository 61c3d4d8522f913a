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
// so they report no utilisation, memory, power or temperature.
type simulated struct {
	devices []Device
	faults  string
}

// Simulated plays n GPUs of a model. They are unwell as the file of faults
// says: one line for each, its index and why ("1 fell off the bus").
func Simulated(n int, model cluster.GPUModel, faults string) Source {
	s := &simulated{faults: faults}
	for i := range n {
		s.devices = append(s.devices, Device{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Name: model.Name, Model: model.Name,
			Memory: model.Memory, Minor: -1, Simulated: true})
	}
	return s
}

func (s *simulated) Devices() []Device { return s.devices }
func (s *simulated) Sample() []Sample  { return make([]Sample, len(s.devices)) }
func (s *simulated) Close() error      { return nil }

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
