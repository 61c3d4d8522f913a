package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
)

// sources say whose gang a pod is; the first that knows it decides. Each stands
// in a file of its own. What no source knows, is a gang of one.
var sources = []func(*Driver, *v1.Pod) *claim{
	ownGang,     // source_label.go: muster.sh/gang
	nativeGroup, // group_native.go: scheduling.k8s.io PodGroup
	kueueGroup,  // group_kueue.go: pods of a Kueue pod group
	volcanoGroup,
	kaiGroup,
	jobSetGang, // owner_jobset.go
	lwsGang,    // owner_lws.go
	kubeflowGang,
	rayGang,
	jobGang,    // owner_job.go
	serviceOne, // owner_service.go: each pod alone
}

// claim is what a source says of a pod: the gang that it belongs to.
type claim struct {
	key, name string
	// need says what the gang has to be now; it is asked again whenever one of
	// its pods or its object changed.
	need func(*gang) (membership, error)
	// object is what made the gang and says how large it is; nothing: nobody.
	object objKey
	kind   cluster.Kind
	// of is the gang that a pod that is alone belongs to nevertheless: one
	// beyond those that it needs.
	of string
}

// alone is the claim of a pod that is a gang of one.
func alone(obj *v1.Pod, object objKey, kind cluster.Kind) *claim {
	return &claim{key: "pod/" + string(obj.UID), name: obj.Namespace + "/" + obj.Name, object: object, kind: kind,
		need: func(*gang) (membership, error) { return membership{size: 1}, nil }}
}

// membership says what a gang has to be.
type membership struct {
	size   int       // pods that it starts with
	submit time.Time // since when it counts as waiting; zero: since its first pod was created
	// roles are how many pods of each kind it starts with, if they are not all
	// of one kind, the most important first; size is their sum. role says which
	// a pod has.
	roles []role
	role  func(*v1.Pod) string
	// stated is how many pods the gang is said to have in all, at most of which it may start with; 0: nobody says.
	stated int
	// open: pods beyond these start too, one by one, once the gang runs.
	open bool
}

type role struct {
	name  string
	count int
}

// roled is a membership of pods of several kinds.
func roled(roles []role, of func(*v1.Pod) string) membership {
	m := membership{roles: roles, role: of}
	for _, r := range roles {
		m.size += r.count
	}
	return m
}

// lower lets the gang start with fewer pods; those that are beyond, the least
// important ones, follow one by one.
func (m *membership) lower(to int) {
	if to >= m.size {
		return
	}
	for i := len(m.roles) - 1; i >= 0; i-- {
		r := &m.roles[i]
		cut := min(r.count, m.size-to)
		r.count -= cut
		m.size -= cut
	}
	m.size, m.open = to, true
}

// pick chooses the pods that the gang starts with, in their order; it returns
// fewer than size while they are not all there, and then what lacks of which
// role.
func (m *membership) pick(ready []*pod) (list []*pod, lacks string) {
	size := max(1, m.size)
	if m.role == nil {
		return ready[:min(size, len(ready))], ""
	}
	have := make([]int, len(m.roles))
	for _, p := range ready {
		name := m.role(p.obj)
		i := slices.IndexFunc(m.roles, func(r role) bool { return r.name == name })
		if i >= 0 && have[i] < m.roles[i].count {
			have[i]++
			list = append(list, p)
		}
	}
	var text []string
	for i, r := range m.roles {
		if have[i] < r.count {
			text = append(text, fmt.Sprintf("%s: %d of %d", r.name, have[i], r.count))
		}
	}
	return list, strings.Join(text, ", ")
}

// wanted lists the pods of a gang that want to be bound, those first whose role
// lacks most to what runs: a head takes the place of a head.
func (g *gang) wanted() []*pod {
	list := g.ready()
	m, err := g.need()
	if err != nil || m.role == nil {
		return list
	}
	lack := map[string]int{}
	for _, r := range m.roles {
		lack[r.name] = r.count
	}
	for i := range g.slots {
		if p := g.pods[g.slots[i].pod]; p != nil && !p.over() {
			lack[m.role(p.obj)]--
		}
	}
	var first, rest []*pod
	for _, p := range list {
		if name := m.role(p.obj); lack[name] > 0 {
			lack[name]--
			first = append(first, p)
			continue
		}
		rest = append(rest, p)
	}
	return append(first, rest...)
}

// suspendedError is why a gang does not want to run.
type suspendedError struct{ what string }

func (e *suspendedError) Error() string { return e.what + " is suspended (spec.suspend)" }

// suspended reports whether a gang's need failed because somebody suspended it.
func suspended(err error) bool {
	var s *suspendedError
	return errors.As(err, &s)
}

// claimOf finds out whose gang a pod of ours is.
func (d *Driver) claimOf(obj *v1.Pod) *claim {
	var c *claim
	for _, f := range sources {
		if c = f(d, obj); c != nil {
			break
		}
	}
	if c == nil {
		return alone(obj, objKey{}, cluster.Training)
	}
	if p := planOf(obj); p != nil && p.Alone && obj.Spec.NodeName != "" { // it started after its gang
		one := alone(obj, c.object, c.kind)
		one.of = c.key
		return one
	}
	return c
}

// gangOf finds the gang of a pod of ours, or makes it.
func (d *Driver) gangOf(obj *v1.Pod) *gang { return d.gangFor(d.claimOf(obj)) }

func (d *Driver) gangFor(c *claim) *gang {
	g := d.gangs[c.key]
	if g == nil {
		g = &gang{key: c.key, name: c.name, of: c.of, object: c.object, kind: c.kind, pods: map[types.UID]*pod{}, id: cluster.NoJob}
		g.need = func() (membership, error) { return c.need(g) }
		d.gangs[c.key] = g
		if c.object != (objKey{}) {
			d.use(g, c.object)
		}
		if c.of != "" {
			d.ones[c.of]++
		}
	}
	return g
}

// drop forgets a gang that has no pods any more. It may be forgotten already, and
// another have its key: a binding may be answered after its pod is gone.
func (d *Driver) drop(g *gang) {
	if d.gangs[g.key] != g {
		return
	}
	delete(d.gangs, g.key)
	delete(d.retries, g.key)
	if l := g.legacy; l != nil { // its pods went before they started: for those that come now
		l.began, l.at, g.legacy = time.Unix(0, int64(d.now)).Truncate(time.Second), d.now, nil
		d.keep(*l)
	}
	if g.of != "" {
		if d.ones[g.of]--; d.ones[g.of] == 0 {
			delete(d.ones, g.of)
		}
	}
	for key := range g.uses {
		if delete(d.uses[key], g); len(d.uses[key]) == 0 {
			delete(d.uses, key)
		}
	}
}

// regroup looks whose the pods of a gang are, now that what made it changed.
// What is bound stays what it is.
func (d *Driver) regroup(g *gang) {
	if g.phase == gathering || g.phase == waiting {
		for _, p := range g.sorted() {
			if g.of == "" && d.claimOf(p.obj).key != g.key {
				d.rejoin(p)
			}
		}
	}
	d.touch(g)
}

// rejoin puts a pod that holds nothing into the gang that is now its own.
func (d *Driver) rejoin(p *pod) {
	if g := p.gang; g != nil && p.node == "" && (g.phase == gathering || g.phase == waiting) {
		d.leave(p)
		d.join(p)
	}
}

// release lets pods that a running gang does not need start by themselves, with
// its queue and priority.
func (d *Driver) release(g *gang, m *membership) {
	if !m.open || g.of != "" {
		return
	}
	for _, p := range g.ready() {
		if p.binding || slices.ContainsFunc(g.slots, func(s slot) bool { return s.pod == p.obj.UID }) {
			continue
		}
		c := alone(p.obj, g.object, g.kind)
		c.of = g.key
		delete(g.pods, p.obj.UID)
		p.gang = d.gangFor(c)
		p.gang.pods[p.obj.UID] = p
		d.touch(p.gang)
	}
}

// recall takes the pods back that were released, when the gang that they belong
// to does not run any more: those that wait, wait with it; those that run, go
// with it, if it is told to leave.
func (d *Driver) recall(g *gang, leave bool) {
	if d.ones[g.key] == 0 {
		return
	}
	for _, one := range d.gangs {
		if one.of != g.key {
			continue
		}
		switch one.phase {
		case gathering, waiting:
			for _, p := range one.sorted() {
				d.rejoin(p)
			}
		case running:
			if !leave {
				continue
			}
			d.leaveAll(one, "the gang that it belongs to, "+g.name+", leaves")
		}
	}
}
