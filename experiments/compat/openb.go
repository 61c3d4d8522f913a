package compat

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand"
	"slices"
	"strings"
)

// The world of FGD's simulator (ATC'23): no time passes, no pod leaves. A list of pods is shuffled
// and, by copying pods or leaving some out, brought to 1.3 times the cluster's size; each pod in
// turn is placed or lost. Scores are whole numbers from 0 to 100, so ties are common, and are
// broken by a random rank of the machines. The numbers Q1 ... name quirks of that simulator.

// Pod is a row of a list. A pod has GPUs devices, and Milli of each.
type Pod struct {
	Name        string
	CPU, Memory int64 // milli-cores, MiB
	GPUs        int
	Milli       int64  // 0: no GPU; 1000: whole ones
	Spec        string // acceptable models, joined by "|"; empty: any
}

// Machine is a row of the node list.
type Machine struct {
	Name        string
	CPU, Memory int64
	GPUs        int
	Model       string
}

// MostDevices is the maximum number of GPUs of a machine.
const MostDevices = 8

// mostSizes is the maximum number of different parts of a GPU that typical pods request.
const mostSizes = 64

// Kind is pods with equal requests; memory is ignored (Q10).
type Kind struct {
	CPU, Milli int64
	GPUs       int
	Models     uint64 // models on which it may run, a bit each
	Share      float64

	spec  string
	count int
	size  int // index in Typical.sizes
}

// Openb is a list of pods with the machines to place them on.
type Openb struct {
	pods     []Pod // by name
	kindOf   []int32
	kinds    []Kind
	machines []Machine // by name
	models   []uint64  // bit of each machine's model
	devices  int64
	Typical  Typical
}

// Typical is the kinds over which fragments are computed (section 2), in the order of the table:
// the order of its summation must not change.
type Typical struct {
	Kinds []Kind
	sizes []int64 // different amounts requested of one device
}

// NewOpenb checks a list and counts its kinds.
func NewOpenb(pods []Pod, machines []Machine) (*Openb, error) {
	o := &Openb{pods: slices.Clone(pods), machines: slices.Clone(machines)}
	slices.SortStableFunc(o.pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(o.machines, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	names := map[string]uint64{}
	for i := range o.machines {
		m := &o.machines[i]
		if m.GPUs < 1 || m.GPUs > MostDevices {
			return nil, fmt.Errorf("machine %s: %d GPUs; between 1 and %d are possible", m.Name, m.GPUs, MostDevices)
		}
		if names[m.Model] == 0 {
			if len(names) == 64 {
				return nil, fmt.Errorf("machine %s: more than 64 GPU models", m.Name)
			}
			names[m.Model] = 1 << len(names)
		}
		o.models = append(o.models, names[m.Model])
		o.devices += int64(m.GPUs)
	}
	at := map[Kind]int32{}
	for i := range o.pods {
		p := &o.pods[i]
		k := Kind{CPU: p.CPU, Milli: min(1000, p.Milli), GPUs: p.GPUs, Models: ^uint64(0), spec: p.Spec}
		if p.GPUs == 0 {
			k.Milli, k.spec = 0, ""
		} else if k.Milli < 1 || k.GPUs > 1 && k.Milli < 1000 {
			return nil, fmt.Errorf(
				"pod %s: %d milli-GPU of each of %d GPUs; whole ones, or a part of one, are possible", p.Name, p.Milli,
				p.GPUs)
		}
		p.GPUs, p.Milli = k.GPUs, k.Milli
		id, ok := at[k]
		if !ok {
			id = int32(len(o.kinds))
			at[k] = id
			o.kinds = append(o.kinds, k)
		}
		o.kinds[id].count++
		o.kindOf = append(o.kindOf, id)
	}
	for i := range o.kinds {
		o.kinds[i].Models = modelsOf(o.kinds[i].spec, names)
	}
	if o.Typical = typical(o.kinds, len(o.pods)); len(o.Typical.sizes) > mostSizes {
		return nil, fmt.Errorf("the typical pods ask for %d different parts of a GPU; at most %d are possible",
			len(o.Typical.sizes), mostSizes)
	}
	return o, nil
}

func modelsOf(spec string, names map[string]uint64) (mask uint64) {
	any := true
	for s := range strings.SplitSeq(spec, "|") {
		if s != "" {
			mask, any = mask|names[s], false
		}
	}
	if any {
		return ^uint64(0)
	}
	return mask
}

// typical takes the most frequent kinds until they cover 95 % of the pods.
func typical(kinds []Kind, pods int) (t Typical) {
	sorted := slices.Clone(kinds)
	slices.SortFunc(sorted, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Milli, a.Milli),
			cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.spec, a.spec))
	})
	n, sum := float64(pods), 0
	for i := range sorted {
		if float64(sum) >= 95*n/100 {
			break
		}
		sum += sorted[i].count
		t.Kinds = append(t.Kinds, sorted[i])
	}
	for i := range t.Kinds {
		k := &t.Kinds[i]
		k.Share = float64(k.count) / n
		if len(t.Kinds) < len(kinds) {
			k.Share /= float64(sum) / n
		}
		if k.size = slices.Index(t.sizes, k.Milli); k.size < 0 {
			k.size = len(t.sizes)
			t.sizes = append(t.sizes, k.Milli)
		}
	}
	return t
}

// arrivals draws the sequence of pods and the machines in order of their ranks (section 3). The pod
// that would exceed the target ends the list, judged by its request per device (Q2).
func (o *Openb) arrivals(seed int64) (pods []int32, ranked []int32) {
	r := rand.New(rand.NewSource(seed)) //nolint:gosec // the published order is that of this generator
	r.Int()                             // Q4
	demand, n := int64(0), len(o.pods)
	for i := range o.pods {
		pods = append(pods, int32(i))
		demand += o.pods[i].Milli * int64(o.pods[i].GPUs)
	}
	r.Shuffle(n, func(i, k int) { pods[i], pods[k] = pods[k], pods[i] })
	target := 1.3 * float64(1000*o.devices)
	switch {
	case float64(demand) < target:
		for {
			i := r.Intn(n)
			p := &o.pods[i]
			if float64(demand+p.Milli) > target {
				break
			}
			pods = append(pods, int32(i))
			demand += p.Milli * int64(p.GPUs)
		}
	default:
		for float64(demand) > target {
			i := r.Intn(len(pods))
			p := &o.pods[pods[i]]
			pods = slices.Delete(pods, i, i+1)
			demand -= p.Milli * int64(p.GPUs)
		}
	}
	for range 10 { // Q3
		r.Int63()
	}
	ranked = make([]int32, len(o.machines))
	for i, rank := range r.Perm(len(o.machines)) {
		ranked[rank] = int32(i)
	}
	return pods, ranked
}

// Host is a machine with its free resources.
type Host struct {
	CPU, Memory int64
	Free        [MostDevices]int64 // milli-GPU of each device
	GPUs        int
	Model       uint64
	Total       int64  // sum of Free
	Sizes       uint64 // sizes of the tasks on it: bit 0: parts, bit k: k whole GPUs

	fragments float64
	known     bool // the cached fragments are of this state
}

// fits reports whether a pod of the kind has room, apart from memory.
func (h *Host) fits(k *Kind) bool {
	if h.CPU < k.CPU || h.Model&k.Models == 0 && k.GPUs > 0 {
		return false
	}
	n := k.GPUs
	if h.Total < k.Milli*int64(n) {
		return false
	}
	for i := 0; i < h.GPUs && n > 0; i++ {
		if h.Free[i] >= k.Milli {
			n--
		}
	}
	return n == 0
}

// take places a pod: a part on the device, whole GPUs on the first free ones.
func (h *Host) take(k *Kind, device int) {
	h.known = false
	h.CPU -= k.CPU
	switch {
	case k.GPUs == 0:
	case k.Milli < 1000:
		h.Free[device] -= k.Milli
		h.Sizes |= 1
	default:
		h.Sizes |= 1 << k.GPUs
		for i, n := 0, k.GPUs; n > 0; i++ {
			if h.Free[i] == 1000 {
				h.Free[i] = 0
				n--
			}
		}
	}
	h.Total -= k.Milli * int64(k.GPUs)
}

// fullest is the device with the least free capacity on which a part fits, the first of equals.
func (h *Host) fullest(k *Kind) int {
	best := -1
	for i := range h.GPUs {
		if h.Free[i] >= k.Milli && (best < 0 || h.Free[i] < h.Free[best]) {
			best = i
		}
	}
	return best
}

// Scorer rates a host with room for a kind, from 0 to 100 (ours: to 32767), and selects the device
// for a part.
type Scorer func(t *Typical, h *Host, k *Kind) (score, device int)

// run is one pass over a sequence of arrivals.
type run struct {
	o       *Openb
	score   Scorer
	pods    []int32 // in order of arrival
	hosts   []Host  // by rank
	rated   []rating
	log     []int32 // hosts in order of change
	changed []int   // by host: its last index in the log
	fit     []int   // scratch: hosts with room
}

// rating caches the scores of the hosts for a kind.
type rating struct {
	seen   int     // index in the log up to which it is valid
	scores []int16 // -1: no room
	tops   []int16 // the highest score of each block of hosts
	device []int8
}

// block is the number of hosts that share a highest score.
const block = 32

// Cells is a line of the published table: column k has the GPUs allocated, in per cent, when k per
// cent of the cluster's GPUs have been requested. NaN: empty.
type Cells [131]float64

// start is a run before its first arrival.
func (o *Openb) start(seed int64, score Scorer) *run {
	pods, ranked := o.arrivals(seed)
	w := &run{o: o, score: score, pods: pods, hosts: make([]Host, len(ranked)), rated: make([]rating, len(o.kinds)),
		changed: make([]int, len(ranked))}
	for rank, i := range ranked {
		m := &o.machines[i]
		h := &w.hosts[rank]
		*h = Host{CPU: m.CPU, Memory: m.Memory, GPUs: m.GPUs, Model: o.models[i], Total: int64(m.GPUs) * 1000}
		for d := range m.GPUs {
			h.Free[d] = 1000
		}
	}
	return w
}

// place puts a pod on a host.
func (w *run) place(at, device int, pod int32) {
	w.hosts[at].take(&w.o.kinds[w.o.kindOf[pod]], device)
	w.hosts[at].Memory -= w.o.pods[pod].Memory
	w.log = append(w.log, int32(at))
	w.changed[at] = len(w.log) - 1
}

// Run plays the list once. A nil scorer takes any host with room, and any device.
func (o *Openb) Run(score Scorer, seed int64) (Cells, error) {
	w := o.start(seed, score)
	rng := rand.New(rand.NewSource(seed)) //nolint:gosec // seeded like the published one
	arrived, used := int64(0), int64(0)
	columns := make([][]float64, 140)
	for _, p := range w.pods {
		kind := o.kindOf[p]
		asked := o.kinds[kind].Milli * int64(o.kinds[kind].GPUs)
		var at, device int
		if score == nil {
			at, device = w.any(rng, kind, o.pods[p].Memory)
		} else {
			at, device = w.best(kind, o.pods[p].Memory)
		}
		if arrived += asked; at >= 0 {
			w.place(at, device, p)
			used += asked
		}
		x := int(math.RoundToEven(float64(arrived) / float64(o.devices) / 10))
		if x >= len(columns) {
			return Cells{}, fmt.Errorf("%d %% of the GPUs are asked for; at most %d are expected", x, len(columns)-1)
		}
		columns[x] = append(columns[x], hundredths(used, o.devices))
	}
	return cells(columns), nil
}

// update rates the hosts that changed since the last pod of the kind.
func (w *run) update(kind int32) *rating {
	r, k := &w.rated[kind], &w.o.kinds[kind]
	if r.scores == nil {
		n := len(w.hosts)
		r.scores, r.device, r.tops = make([]int16, n), make([]int8, n), make([]int16, (n+block-1)/block)
		for i := range w.hosts {
			w.rate(r, k, i)
		}
	}
	for i := r.seen; i < len(w.log); i++ {
		if at := w.log[i]; w.changed[at] == i {
			w.rate(r, k, int(at))
		}
	}
	r.seen = len(w.log)
	return r
}

// rate scores a host for a kind, and updates its block.
func (w *run) rate(r *rating, k *Kind, i int) {
	was, top := r.scores[i], &r.tops[i/block]
	r.scores[i] = -1
	if h := &w.hosts[i]; h.fits(k) {
		s, d := 0, 0
		if w.score != nil {
			s, d = w.score(&w.o.Typical, h, k)
		}
		r.scores[i], r.device[i] = int16(s), int8(d)
	}
	if r.scores[i] >= *top {
		*top = r.scores[i]
	} else if was == *top {
		*top = slices.Max(r.scores[i/block*block : min(len(r.scores), (i/block+1)*block)])
	}
}

// best is the host with the highest score among those with room, the lowest rank among equals; -1:
// none.
func (w *run) best(kind int32, memory int64) (at, device int) {
	r := w.update(kind)
	at, most := -1, int16(-1)
	for b, top := range r.tops {
		if top <= most {
			continue
		}
		for i := b * block; i < min(len(r.scores), (b+1)*block); i++ {
			if s := r.scores[i]; s > most && w.hosts[i].Memory >= memory {
				at, most = i, s
			}
		}
	}
	if at < 0 {
		return -1, 0
	}
	return at, int(r.device[at])
}

// any draws a host, and for a part a device, among those with room.
func (w *run) any(rng *rand.Rand, kind int32, memory int64) (at, device int) {
	r, k := w.update(kind), &w.o.kinds[kind]
	w.fit = w.fit[:0]
	for i, s := range r.scores {
		if s >= 0 && w.hosts[i].Memory >= memory {
			w.fit = append(w.fit, i)
		}
	}
	if len(w.fit) == 0 {
		return -1, 0
	}
	at = w.fit[rng.Intn(len(w.fit))]
	if k.Milli == 0 || k.Milli == 1000 {
		return at, 0
	}
	var mask uint
	for d := range w.hosts[at].GPUs {
		if w.hosts[at].Free[d] >= k.Milli {
			mask |= 1 << d
		}
	}
	for range rng.Intn(bits.OnesCount(mask)) {
		mask &= mask - 1
	}
	return at, bits.TrailingZeros(mask)
}
