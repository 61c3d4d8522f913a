package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseShort reads the short form of a cluster: NODESxGPUSxMODEL, several joined by "+"
// ("64x8xA100-80GB+16x4xT4"). The model is optional ("2x8"). Nodes are named n1, n2, ... in order.
func ParseShort(s string) (*Spec, error) {
	spec := &Spec{Name: s}
	for part := range strings.SplitSeq(s, "+") {
		f := strings.SplitN(part, "x", 3)
		if len(f) < 2 {
			return nil, fmt.Errorf("cluster %q: %q is not NODESxGPUSxMODEL, for example 64x8xA100-80GB", s, part)
		}
		nodes, err1 := strconv.Atoi(f[0])
		gpus, err2 := strconv.Atoi(f[1])
		if err1 != nil || err2 != nil || nodes < 1 || gpus < 0 {
			return nil, fmt.Errorf("cluster %q: %q is not NODESxGPUSxMODEL, for example 64x8xA100-80GB", s, part)
		}
		if gpus > MaxGPUsPerNode {
			return nil, fmt.Errorf("cluster %q: %d GPUs in a node; at most %d are supported", s, gpus, MaxGPUsPerNode)
		}
		if nodes > 1<<20 || len(spec.Nodes)+nodes > 1<<20 {
			return nil, fmt.Errorf("cluster %q: more than %d nodes", s, 1<<20)
		}
		model := "GPU-80GB"
		if len(f) == 3 {
			m, ok := FindModel(f[2])
			if !ok {
				return nil, fmt.Errorf("cluster %q: %w", s, Unknown("GPU model", f[2], modelNames()))
			}
			model = m.Name
		}
		for range nodes {
			spec.Nodes = append(spec.Nodes, Node{
				Name: "n" + strconv.Itoa(len(spec.Nodes)+1), Model: model, GPUs: gpus})
		}
	}
	spec.addGeneric()
	return spec, nil
}

// addGeneric defines the model of short forms without one.
func (s *Spec) addGeneric() {
	for i := range s.Nodes {
		if s.Nodes[i].Model == "GPU-80GB" {
			s.Models = append(s.Models, GPUModel{Name: "GPU-80GB", Memory: 80 * 1024, NVLink: true, NVSwitch: true})
			return
		}
	}
}

func modelNames() []string {
	var names []string
	for _, m := range Models() {
		names = append(names, m.Name)
	}
	return names
}

// GroupTasks turns a gang of n one-GPU tasks into as few node-sized tasks as possible: n on one
// node if it fits, otherwise whole nodes and one remainder. Training jobs that request "n GPUs" run
// like this on real clusters (one process group per node). CPU and RAM are per GPU and scale with
// the task.
func GroupTasks(n, perNode int, each Request) []TaskSet {
	task := func(count, gpus int) TaskSet {
		r := each
		r.GPUs, r.CPU, r.RAM = gpus, each.CPU*Milli(gpus), each.RAM*MiB(gpus)
		return TaskSet{Count: count, Request: r}
	}
	if perNode < 1 || n <= perNode {
		return []TaskSet{task(1, n)}
	}
	sets := []TaskSet{task(n/perNode, perNode)}
	if rest := n % perNode; rest > 0 {
		sets = append(sets, task(1, rest))
	}
	return sets
}
