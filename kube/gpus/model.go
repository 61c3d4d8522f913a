package gpus

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// UnknownModel is what GPUs are called on nodes that do not say.
const UnknownModel = "GPU"

// mpsCapable is a label of GPU feature discovery's: GPUs are shared by MPS.
const mpsCapable = "nvidia.com/mps.capable"

// labelled is what labels say of a node's GPUs.
type labelled struct{ product, memory string }

// Model is the model of a node's GPUs, as its labels have it; those that Muster knows by another name get that.
func (c *Names) Model(n *v1.Node) string {
	if n == nil {
		return UnknownModel
	}
	product := n.Labels[c.Labels.Product]
	if product == "" {
		_, product = c.published(n.Name)
	}
	if product == "" {
		return UnknownModel
	}
	if strings.Contains(product, "-MIG-") { // all of its GPUs are slices of one profile, and counted as GPUs
		return product
	}
	key := labelled{product, n.Labels[c.Labels.Memory]}
	name, known := c.models[key]
	if !known {
		if c.models == nil {
			c.models = map[labelled]string{}
		}
		name = modelNamed(product, key.memory)
		c.models[key] = name
	}
	return name
}

// Forget forgets the models that were looked up.
func (c *Names) Forget() { clear(c.models) }

// modelNamed is the model of GPUs with such labels.
func modelNamed(product, memory string) string {
	words := strings.FieldsFunc(strings.ToUpper(product), func(r rune) bool { return r == '-' || r == '_' || r == ' ' })
	best := ""
	for _, m := range cluster.Models() {
		family, size, _ := strings.Cut(m.Name, "-")
		if !slices.Contains(words, family) {
			continue
		}
		if slices.Contains(words, size) || best == "" && near(memory, m.Memory) {
			best = m.Name
		}
	}
	if best == "" {
		return product
	}
	return best
}

// near reports whether a label's MiB are about so much: drivers keep a little for themselves.
func near(label string, memory cluster.MiB) bool {
	m := mebibytes(label)
	return m > memory*9/10 && m < memory*11/10
}

// Memory is how much memory a GPU of a node has, as its label says; 0: it does not.
func (c *Names) Memory(n *v1.Node) cluster.MiB { return mebibytes(n.Labels[c.Labels.Memory]) }

func mebibytes(label string) (m cluster.MiB) {
	if _, err := fmt.Sscanf(label, "%d", &m); err != nil || m < 0 {
		return 0
	}
	return m
}

// Ways is how a node shares its GPUs, if it does, and of what model they are, with the memory that its label says.
func (c *Names) Ways(n *v1.Node) (w cluster.Ways) {
	name := c.Model(n)
	w.Model, _ = cluster.FindModel(name)
	w.Model.Name, w.Model.Memory = name, cmp.Or(c.Memory(n), w.Model.Memory)
	how := n.Labels[c.Labels.Sharing]
	if how == cluster.MPS.String() || how == "" && n.Labels[mpsCapable] == "true" {
		w.Sharing = cluster.MPS
	}
	return w
}

// PerGPU is how many replicas of a GPU a node has that go by the GPUs' own name, as far as its labels say so; 1: its
// GPUs are whole.
func (c *Names) PerGPU(n *v1.Node) int {
	how := n.Labels[c.Labels.Sharing]
	of, err := strconv.Atoi(n.Labels[c.Labels.Replicas])
	if err != nil || how == "" || how == "none" || c.ReplicasOn(n).Name != "" {
		return 1
	}
	return max(1, of)
}
