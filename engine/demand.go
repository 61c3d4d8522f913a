package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Demand is what tasks ask for, as the jobs have it that were submitted last:
// those that wait, that run, and that are over. It is a function of the jobs
// alone, so that a restart and a replay know it without a record of it.

const (
	mostDemand = 1000 // jobs that are looked at
	mostKinds  = 64   // of tasks that are told apart
	mostWeight = 1000 // tasks of one set that count
	covered    = 95   // per cent of the tasks that the kinds must cover (G-fgd-procedure, 2)
)

// taskKind is tasks that ask for the same.
type taskKind struct {
	request cluster.Request
	user    string   // whose shares they are, where that matters
	suits   classSet // where they can ever run
	weight  int64    // tasks
	key     []byte
}

// demand is the kinds of tasks that count, the most frequent first.
type demand struct {
	upto     int // jobs below this number were looked at
	stale    bool
	all      []taskKind     // every kind of those jobs, and some without tasks
	at       map[string]int // its place in all; looked up only
	rev      int64          // grows whenever kinds do change
	kinds    []taskKind
	weight   int64         // of all kinds
	byClass  [][]fragGroup // the kinds that suit a class, by what they need of devices
	computed int64         // nodes that were evaluated, for tests and benchmarks
}

// demandUpto is the job at which demand was last estimated when n are known:
// anew with each job at first, later when an eighth of them are new, at the
// latest after 128.
func demandUpto(n int) int {
	step := 1
	if n >= 16 {
		step = min(128, 1<<(bits.Len(uint(n))-4))
	}
	return n - n%step
}

// demandNow returns the demand in force.
func (e *Engine) demandNow() *demand {
	d := &e.demand
	if upto := demandUpto(len(e.jobs)); d.rev == 0 || d.stale || d.upto != upto {
		d.rev++
		e.countDemand(d, upto)
	}
	return d
}

// countDemand counts the tasks of the last jobs up to one by kind and keeps the
// most frequent kinds. Tasks without GPUs are left out: no free GPU is of use to them.
func (e *Engine) countDemand(d *demand, upto int) {
	was := d.upto
	d.upto = upto
	if d.stale || d.at == nil || len(d.all) > 4*mostDemand || upto < was {
		d.stale, d.all, d.at, was = false, nil, map[string]int{}, 0
	}
	from := func(upto int) int { return max(0, upto-mostDemand) }
	e.addDemand(d, from(was), min(was, from(upto)), -1)
	e.addDemand(d, max(was, from(upto)), upto, 1)
	kinds := make([]*taskKind, 0, len(d.all))
	total := int64(0)
	for i := range d.all {
		if k := &d.all[i]; k.weight > 0 && !k.suits.empty() {
			kinds = append(kinds, k)
			total += k.weight
		}
	}
	slices.SortFunc(kinds, func(a, b *taskKind) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), bytes.Compare(a.key, b.key))
	})
	d.kinds, d.weight = nil, 0
	for _, k := range kinds {
		if len(d.kinds) == mostKinds || d.weight*100 >= total*covered {
			break
		}
		d.kinds = append(d.kinds, *k)
		d.weight += k.weight
	}
	d.group(e.st.classes)
}

// addDemand counts the tasks of jobs from number a to b, or takes them back.
func (e *Engine) addDemand(d *demand, a, b int, sign int64) {
	for _, j := range e.jobs[min(a, b):b] {
		if j == nil || CheckTasks(j.spec) != "" {
			continue
		}
		for i := range j.spec.Tasks {
			t := &j.spec.Tasks[i]
			if t.Request.GPUs == 0 {
				continue
			}
			e.scratch.key = kindKey(e.scratch.key[:0], j.spec, &t.Request, e.sharer(j.spec, &t.Request))
			k, ok := d.at[string(e.scratch.key)]
			if !ok {
				k = len(d.all)
				d.all = append(d.all, taskKind{request: t.Request, user: e.sharer(j.spec, &t.Request), key: bytes.Clone(e.scratch.key), suits: e.suitsOf(j.spec, &t.Request)})
				d.at[string(d.all[k].key)] = k
			}
			d.all[k].weight += sign * int64(min(t.Count, mostWeight))
		}
	}
}

// sharer is whose shares tasks are, where those of several users keep apart.
func (e *Engine) sharer(j *cluster.Job, r *cluster.Request) string {
	if e.cfg.Spec.Sharing != cluster.MPS || !r.Fractional() || r.Profile != "" {
		return ""
	}
	return j.User
}

// kindKey writes what makes up a kind into buf.
func kindKey(buf []byte, j *cluster.Job, r *cluster.Request, user string) []byte {
	for _, v := range []int64{int64(r.GPUs), r.Share, r.Memory, r.CPU, r.RAM} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(v))
	}
	for _, list := range [][]string{{r.Profile, user}, j.GPUTypes, j.Partitions} {
		buf = binary.AppendVarint(buf, int64(len(list)))
		for _, s := range list {
			buf = append(binary.AppendVarint(buf, int64(len(s))), s...)
		}
	}
	return buf
}

// suitsOf is the classes on which a task of the job can ever run.
func (e *Engine) suitsOf(j *cluster.Job, r *cluster.Request) (suits classSet) {
	parts := e.partMask(j.Partitions)
	for ci := range e.st.classes {
		c := &e.st.classes[ci]
		if c.parts&parts != 0 && whyNotClass(r, c) == "" &&
			(len(j.GPUTypes) == 0 || slices.ContainsFunc(j.GPUTypes, func(t string) bool { return matchType(c.model.Name, t) })) {
			suits.add(int32(ci))
		}
	}
	return suits
}

// fragGroup is kinds that need the same of devices; they differ in CPU and RAM.
type fragGroup struct {
	gpus    int
	share   cluster.Milli // of each; 0: whole ones
	each    cluster.Milli // what a task takes in all
	mem     cluster.MiB   // of each, with a share
	user    string        // whose shares, where that matters
	profile *cluster.SliceProfile
	members []fragMember // by CPU
}

type fragMember struct {
	cpu    cluster.Milli
	ram    cluster.MiB
	weight int64
}

// groupOf is what a user's task needs of devices of a model that suits it.
func groupOf(r *cluster.Request, user string, m *cluster.GPUModel) fragGroup {
	g := fragGroup{gpus: r.GPUs, each: r.Milli()}
	if r.Profile != "" {
		g.profile, _ = m.Profile(r.Profile)
		g.each = cluster.Milli(g.profile.Compute) * cluster.Whole / cluster.Milli(m.Compute)
	} else if r.Fractional() {
		g.share, g.mem, g.user = r.Share, r.Memory, user
	}
	return g
}

// group sorts the kinds by class and by what they need of devices.
func (d *demand) group(classes []class) {
	d.byClass = make([][]fragGroup, len(classes))
	for i := range d.kinds {
		k := &d.kinds[i]
		for ci := range classes {
			if !k.suits.has(int32(ci)) {
				continue
			}
			g := groupOf(&k.request, k.user, &classes[ci].model)
			at := slices.IndexFunc(d.byClass[ci], func(o fragGroup) bool {
				return o.gpus == g.gpus && o.share == g.share && o.mem == g.mem && o.user == g.user && o.profile == g.profile
			})
			if at < 0 {
				at = len(d.byClass[ci])
				d.byClass[ci] = append(d.byClass[ci], g)
			}
			m := &d.byClass[ci][at].members
			*m = append(*m, fragMember{k.request.CPU, k.request.RAM, k.weight})
		}
	}
	for ci := range d.byClass {
		for i := range d.byClass[ci] {
			slices.SortStableFunc(d.byClass[ci][i].members, func(a, b fragMember) int { return cmp.Compare(a.cpu, b.cpu) })
		}
	}
}
