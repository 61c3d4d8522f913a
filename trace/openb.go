package trace

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/unpack"
)

// openbFormat is Alibaba's 2023 GPU-sharing trace: a list of pods, with the machines in a separate
// list (Options.Nodes; it can be read alone). Times are in seconds from the trace's own zero, CPU
// in milli-cores, memory in MiB.
var openbFormat = Format{
	Name:  "openb",
	About: "Alibaba openb (2023): pods with fractional GPUs; or its node list",
	Detect: func(head []byte, name string) bool {
		return columns(',', "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")(head, name) ||
			columns(',', "sn", "cpu_milli", "memory_mib", "gpu", "model")(head, name)
	},
	Read: readOpenb,
}

func readOpenb(b *Builder) error {
	head, _ := b.in.Peek(headSize) // a read error recurs with the first line
	if columns(',', "sn", "gpu", "model")(trimBOM(head), "") {
		return b.openbNodes()
	}
	if b.opt.Nodes != "" {
		if err := b.nodesFrom(b.opt.Nodes); err != nil {
			return err
		}
	}
	return b.openbPods()
}

// nodesFrom reads the node list at path.
func (b *Builder) nodesFrom(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("node list: %w", err)
	}
	defer f.Close()
	plain, done, err := unpack.Reader(f)
	if err != nil {
		return RowError{File: path, Reason: err.Error()}
	}
	defer done()
	nb := newBuilder(path, "openb", bufio.NewReaderSize(plain, headSize), b.opt)
	if err := nb.openbNodes(); err != nil {
		return err
	}
	b.wl.Nodes, b.wl.Models = nb.wl.Nodes, nb.wl.Models
	b.wl.Bad, b.wl.BadAll = append(b.wl.Bad, nb.wl.Bad...), b.wl.BadAll+nb.wl.BadAll
	return nil
}

func (b *Builder) openbNodes() error {
	t, err := b.table(',', "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return err
	}
	sn, cpu, mem, gpu, model := t.col("sn"), t.col("cpu_milli"), t.col("memory_mib"), t.col("gpu"), t.col("model")
	seen := map[string]bool{}
	for t.next() {
		n := cluster.Node{Name: t.str(sn), GPUs: int(t.num(gpu, 0, cluster.MaxGPUsPerNode)),
			CPU: t.num(cpu, 0, cluster.MaxMilli), RAM: t.num(mem, 0, cluster.MaxMiB)}
		if !t.missing(model) {
			n.Model = b.model(string(t.raw(model)))
		}
		switch {
		case n.Name == "":
			t.fail(sn, "a node name")
		case seen[n.Name]:
			t.fail(sn, "a name of its own; this node is listed twice")
		case n.GPUs > 0 && n.Model == "":
			t.fail(model, "the GPU model of a node with GPUs")
		}
		if t.reason != "" {
			if t.err = b.bad(t.line, t.reason); t.err != nil {
				break
			}
			continue
		}
		seen[n.Name] = true
		b.wl.Nodes = append(b.wl.Nodes, n)
	}
	return t.err
}

// openbModels maps the trace's names of GPUs that Muster knows. G1, G2 and G3 are undisclosed
// models of Alibaba, and keep their names.
var openbModels = map[string]string{
	"V100M16": "V100-16GB", "V100M32": "V100-32GB", "P100": "P100-16GB", "T4": "T4-16GB", "A10": "A10-24GB",
}

// model translates a GPU model's name and records that the trace uses it.
func (b *Builder) model(name string) string {
	if m, ok := openbModels[name]; ok {
		name = m
	}
	name = b.text([]byte(name))
	if !slices.Contains(b.wl.Models, name) {
		b.wl.Models = append(b.wl.Models, name)
	}
	return name
}

// openbCols are the columns of a pod list; the resampled lists have only the
// first five.
type openbCols struct {
	name, cpu, mem, gpus, milli, spec, qos, phase, created, deleted, scheduled int
}

func (b *Builder) openbPods() error {
	t, err := b.table(',', "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
	if err != nil {
		return err
	}
	c := openbCols{t.col("name"), t.col("cpu_milli"), t.col("memory_mib"), t.col("num_gpu"), t.col("gpu_milli"),
		t.col("gpu_spec"), t.col("qos"), t.col("pod_phase"), t.col("creation_time"), t.col("deletion_time"),
		t.col("scheduled_time")}
	timeless := c.created < 0 || c.deleted < 0
	never := 0
	err = t.each(func(e *Entry) bool {
		e.Job.Name = t.str(c.name)
		e.Job.Tier = cluster.Standard
		b.openbRequest(t, &c, e)
		if timeless {
			e.Job.Kind = cluster.Service // it arrives in this order and stays
		} else if b.openbTimes(t, &c, e) {
			never++
		}
		return true
	})
	if timeless {
		b.note("the list has no times: all pods arrive at 0 in file order and stay")
	}
	if never > 0 {
		b.note("%d pods were never scheduled; their run time is taken from creation to deletion", never)
	}
	return err
}

// openbRequest reads the pod's request.
func (b *Builder) openbRequest(t *table, c *openbCols, e *Entry) {
	r := cluster.Request{GPUs: int(t.num(c.gpus, 0, cluster.MaxGPUsPerNode)),
		CPU: t.num(c.cpu, 0, cluster.MaxMilli), RAM: t.num(c.mem, 0, cluster.MaxMiB)}
	milli := t.num(c.milli, 0, cluster.Whole)
	switch {
	case r.GPUs == 0 && milli != 0:
		t.fail(c.milli, "0 for a pod without GPUs")
	case r.GPUs > 0 && milli == 0:
		t.fail(c.milli, "1 to 1000 for a pod with GPUs")
	case milli < cluster.Whole:
		r.Share = milli
	}
	e.Job.Tasks = b.set(1, r)
	if c.spec < 0 || t.missing(c.spec) {
		return
	}
	for m := range strings.SplitSeq(string(t.raw(c.spec)), "|") {
		if m = strings.TrimSpace(m); m == "" {
			t.fail(c.spec, `GPU models joined by "|"`)
			return
		}
		if m = b.model(m); !slices.Contains(e.Job.GPUTypes, m) {
			e.Job.GPUTypes = append(e.Job.GPUTypes, m)
		}
	}
}

// openbTimes reads times, quality of service and outcome. A latency-sensitive pod is a service until
// it is deleted; any other pod is work that took from scheduling to deletion. It reports whether the
// pod was never scheduled.
func (b *Builder) openbTimes(t *table, c *openbCols, e *Entry) (never bool) {
	e.Job.Submit = t.at(c.created, time.Second)
	deleted := t.at(c.deleted, time.Second)
	start := e.Job.Submit
	if c.scheduled >= 0 && !t.missing(c.scheduled) {
		start = t.at(c.scheduled, time.Second)
	} else {
		never = true
	}
	if start < e.Job.Submit || deleted < start {
		t.fail(c.deleted, "after creation and scheduling")
	}
	switch qos := string(t.raw(c.qos)); qos {
	case "LS":
		e.Job.Kind, e.End = cluster.Service, deleted
	case "BE":
		e.Job.Tier = cluster.BestEffort
	case "Burstable", "Guaranteed", "":
	default:
		t.fail(c.qos, "LS, BE, Burstable or Guaranteed")
	}
	if e.Job.Kind != cluster.Service {
		e.Run = deleted.Sub(start)
	}
	if string(t.raw(c.phase)) == "Failed" {
		e.Outcome = Failed
	}
	return never
}
