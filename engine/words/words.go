// Package words says in words what jobs hold and ask for: whole GPUs, shares, slices, and CPU and RAM beside them.
package words

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/shape"
)

// Jobs is "1 job" or "2 jobs".
func Jobs(n int) string { return number(n, "job") }

// GPUs is "1 GPU" or "2 GPUs".
func GPUs(n int) string { return number(n, "GPU") }

// Tasks is "1 task" or "2 tasks".
func Tasks(n int) string { return number(n, "task") }

func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Devices names devices: "GPU 0", "GPUs 0,2".
func Devices(mask uint64) string {
	var list []string
	for m := mask; m != 0; m &= m - 1 {
		list = append(list, strconv.Itoa(bits.TrailingZeros64(m)))
	}
	if len(list) == 1 {
		return "GPU " + list[0]
	}
	return "GPUs " + strings.Join(list, ",")
}

// On is Devices of a node, which is named where there are several.
func On(st *inventory.Store, node int32, mask uint64) string {
	if len(st.Nodes()) == 1 {
		return Devices(mask)
	}
	return Devices(mask) + " of " + st.Nodes()[node].Spec().Name
}

// wholeOrParts writes numbers of whole GPUs and of parts of them.
type wholeOrParts struct {
	whole int
	parts []string
	count []int
}

func (w *wholeOrParts) add(part string) {
	for i := range w.parts {
		if w.parts[i] == part {
			w.count[i]++
			return
		}
	}
	w.parts, w.count = append(w.parts, part), append(w.count, 1)
}

func (w *wholeOrParts) String() string {
	var list []string
	if w.whole > 0 || len(w.parts) == 0 {
		list = append(list, GPUs(w.whole))
	}
	for i, part := range w.parts {
		list = append(list, times(w.count[i], part))
	}
	return strings.Join(list, " and ")
}

// timesText is "0.25 of a GPU" or "3 times 0.25 of a GPU".
func times(n int, part string) string {
	if n == 1 {
		return part
	}
	return fmt.Sprintf("%d times %s", n, part)
}

// share is a part of a GPU, in milli-GPU.
func share(part cluster.Milli) string {
	return fmt.Sprintf("%g of a GPU", float64(part)/float64(cluster.Whole))
}

// instanceText is a MIG instance of a GPU.
func instance(profile string) string {
	article := "a"
	if strings.HasPrefix(profile, "8") {
		article = "an"
	}
	return article + " " + profile + " slice"
}

// Holds is what allocations are of GPUs.
func Holds(st *inventory.Store, allocs []inventory.Alloc) string {
	w := wholeOrParts{}
	for i := range allocs {
		a := &allocs[i]
		switch {
		case a.GPUs == 0:
		case a.Slots != 0:
			w.add(instance(profileOf(st, a)))
		case a.Share > 0:
			w.add(share(cluster.Milli(a.Share)))
		default:
			w.whole += bits.OnesCount64(a.GPUs)
		}
	}
	return w.String()
}

// profileOf is the profile of the instance that an allocation is.
func profileOf(st *inventory.Store, a *inventory.Alloc) string {
	model := st.Classes()[st.Nodes()[a.Node].Class()].Model()
	if p, _, ok := model.Held(a.Slots, int(a.Compute), a.Media); ok {
		return p.Name
	}
	return fmt.Sprintf("%dg", a.Compute)
}

// task is what a task asks for of GPUs.
func task(r *cluster.Request) string {
	switch {
	case r.Profile != "":
		return instance(r.Profile)
	case r.Fractional():
		return times(r.GPUs, shareOf(r))
	}
	return GPUs(r.GPUs)
}

// shareOf is what a task needs of one device.
func shareOf(r *cluster.Request) string {
	text := share(r.Share)
	if r.Memory > 0 {
		text += fmt.Sprintf(" with %d MiB of its memory", r.Memory)
	}
	return text
}

// Asks is what a gang asks for of GPUs, at its smallest.
func Asks(s *shape.Shape) string {
	var list []string
	for i := range s.Sets {
		n := s.Sets[i].Count
		if i == 0 {
			n = int(s.Min)
		}
		if r := &s.Sets[i].Request; r.GPUs > 0 {
			list = append(list, times(n, task(r)))
		}
	}
	return strings.Join(list, " and ")
}

// Host is what a task needs besides devices.
func Host(r *cluster.Request) string {
	var parts []string
	if r.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%g CPU cores", float64(r.CPU)/1000))
	}
	if r.RAM > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB of RAM", r.RAM))
	}
	return strings.Join(parts, " and ")
}
