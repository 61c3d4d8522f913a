//go:build linux

package netlab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// Job is a job of one rank on each of its hosts: it computes, then reduces, over and over.
type Job struct {
	Hosts   []int
	Compute time.Duration
	MiB     float64
	Port    int // at which its ranks meet
	// Plain has two ranks exchange bytes over sockets instead of with PyTorch, which takes each of them two seconds of
	// processor time to load.
	Plain bool
}

// Flow is the job to the model of the network, on the link between the switches (Trunk). What an iteration does besides
// takes 3 ms, and at 200 Mbit/s a MiB takes 46 ms: both as measured of jobs that are alone.
func (j *Job) Flow() flow.Job {
	compute := j.Compute + 3*time.Millisecond
	return flow.Job{Compute: compute, Release: compute, On: []network.Bytes{{Bytes: int64(j.MiB * 46e6)}}}
}

// Trunk is the narrow link, of which Flow states nanoseconds as bytes.
type Trunk struct{}

// Capacity implements network.Links.
func (Trunk) Capacity(network.LinkID) int64 { return 1e9 }

// Uneven implements network.Unequal, as measured of two equal jobs without classes for 40 s: in 81 pairs of
// transmissions, the one that began later had 1.17 times the rate of the other in the mean (of logarithms), and the
// logarithm had a standard deviation of 0.28, as that of the ratio of two numbers between 0.67 and 1.33.
func (Trunk) Uneven() cluster.Uneven { return cluster.Uneven{Later: 17, Varies: 33} }

// Python has the system's packages, PyTorch among them.
const Python = "/usr/bin/python3"

// NoTorch says that PyTorch is missing; nil: it is there. It is only looked for, as to load it takes two seconds of
// processor time.
func NoTorch() error {
	const looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
	if err := exec.Command(Python, "-c", looks).Run(); err != nil {
		return fmt.Errorf("%w: %s has no PyTorch (scripts/install-test-deps.sh installs python3-torch)", ErrLacks,
			Python)
	}
	return nil
}

// Script is a program of the shell that becomes the rank in $RANK; root is the folder of Muster's sources. The
// ranks wait for the gate (Open).
func (l *Lab) Script(j *Job, root, gate string) string {
	var b strings.Builder
	b.WriteString("case $RANK in ")
	for rank, host := range j.Hosts {
		fmt.Fprintf(&b, "%d) net=%s ;; ", rank, l.Path(host))
	}
	fmt.Fprintf(&b, "esac\nexport GLOO_SOCKET_IFNAME=%s PYTHONPATH=%s/clients/python PYTHONDONTWRITEBYTECODE=1\n",
		Interface,
		root)
	kind := "gloo"
	if j.Plain {
		kind = "plain"
	}
	fmt.Fprintf(&b, "exec nsenter --net=$net %s %s/internal/netlab/job.py %s %s %d $RANK %d %.3f %g %s\n", Python, root,
		kind, Address(j.Hosts[0]), j.Port, len(j.Hosts), j.Compute.Seconds(), j.MiB, gate)
	return b.String()
}

// Open waits until jobs are ready, whose outputs are given, and has them begin at the same time: jobs that do not may
// happen not to meet on the link.
func Open(gate string, outs ...string) error {
	for end := time.Now().Add(4 * time.Minute); len(outs) > 0; time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(outs[0]); err == nil && strings.Contains(string(text), "ready\n") {
			outs = outs[1:]
			continue
		} else if time.Now().After(end) {
			return fmt.Errorf("a job is not ready: %s (%v)", text, err)
		}
	}
	begin := time.Now().Add(time.Second)
	text := fmt.Sprintf("%.3f", float64(begin.UnixMilli())/1000)
	if err := os.WriteFile(gate+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(gate+".new", gate)
}

// Iteration is a line of a job's output.
type Iteration struct {
	Began time.Time
	// without the wait for its slot; of that, reducing; the wait
	Took, Reducing, Waited time.Duration
}

// Read reads the output of a job's rank.
func Read(path string) (list []Iteration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var began, took, reducing, waited float64
		n, _ := fmt.Sscan(lines.Text(), &began, &took, &reducing, &waited)
		if n == 4 {
			s := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
			list = append(list, Iteration{time.Unix(0, int64(began*1e9)), s(took), s(reducing), s(waited)})
		}
	}
	return list, nil
}

// Mean is the mean time of an iteration between two times, which is what a job's progress goes by; 0: there is none.
func Mean(list []Iteration, from, to time.Time) time.Duration {
	list = slices.DeleteFunc(slices.Clone(list), func(i Iteration) bool {
		return i.Began.Before(from) || i.Began.After(to)
	})
	if len(list) < 2 {
		return 0
	}
	return list[len(list)-1].Began.Sub(list[0].Began) / time.Duration(len(list)-1)
}

// Median is the median time of an iteration, from the beginning of one to that of the next, between two times; 0: there
// are none.
func Median(list []Iteration, from, to time.Time) time.Duration {
	var times []time.Duration
	for i := 1; i < len(list); i++ {
		if list[i-1].Began.After(from) && list[i].Began.Before(to) {
			times = append(times, list[i].Began.Sub(list[i-1].Began))
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}
