package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// retry is how long a variant for whose replicas there were no GPUs gets no more of them, where other variants can do
// its part.
const retry = 5 * time.Minute

// room knows for which variants there were no GPUs lately.
type room map[int]full

// full is that there were no GPUs for more than so many replicas; until then there are taken to be none.
type full struct {
	replicas int
	until    cluster.Time
}

// see limits the variants of a view whose replicas wait for GPUs in vain, or did so lately, to as many as had some.
// Replicas that may have any part of a GPU become smaller instead.
func (r room) see(v *View) {
	have, stuck := make([]int, len(v.Service.Variants)), make([]bool, len(v.Service.Variants))
	for _, x := range v.Have {
		switch {
		case !x.Stuck:
			have[x.Variant]++
		case !v.sizes(&v.Service.Variants[x.Variant]):
			stuck[x.Variant] = true
		}
	}
	v.most = nil
	for i := range have {
		switch was, lately := r[i]; {
		case stuck[i]:
			r[i] = full{have[i], v.Now.Add(retry)}
		case lately && v.Now < was.until:
			r[i] = full{max(was.replicas, have[i]), was.until}
		default:
			delete(r, i)
			continue
		}
		if v.most == nil {
			v.most = slices.Repeat([]int{v.Service.Replicas.Max}, len(have))
		}
		v.most[i] = r[i].replicas
	}
}

// says names the variants for which there are no GPUs, in words; "": there are some for all.
func (r room) says(s *service.Service) string {
	var list []string
	for i := range s.Variants {
		if f, lately := r[i]; lately {
			list = append(list, fmt.Sprintf("%s (%d have some)", s.Variants[i].Name, f.replicas))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "no GPUs were found for more replicas of " + strings.Join(list, ", ") +
		": other variants do what these cannot, for minutes at least"
}

// roomFor is how many replicas of a variant there may be, as far as is known.
func (v *View) roomFor(variant int) int {
	if v.most == nil {
		return v.Service.Replicas.Max
	}
	return v.most[variant]
}
