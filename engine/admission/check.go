// Package admission says which jobs are refused at once: for what their specs say, or because they could never run on
// the cluster, however empty. It answers the same for narrower versions of a job, which plans make.
package admission

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Checker checks jobs for one cluster. A shape is judged once, until nodes change.
type Checker struct {
	world    *sched.World
	spec     *cluster.Spec
	places   *placement.Finder
	placer   placement.Placer
	limits   *limits.Book
	reserved *reserve.Book
	unshared bool             // the driver does not choose the GPUs of shares and slices
	nodes    map[string]int32 // numbers of nodes by name; looked up only

	empty *inventory.Store // the cluster empty and healthy; nil: to be made
	none  job.Tenure       // of jobs that are only tried
}

// New makes a checker of jobs for the nodes of a world, which has their numbers by name. Unshared says that the driver
// does not choose the GPUs of shares and slices.
func New(places *placement.Finder, spec *cluster.Spec, placer placement.Placer, limit *limits.Book,
	reserved *reserve.Book, nodes map[string]int32, unshared bool) Checker {
	return Checker{world: places.World, spec: spec, places: places, placer: placer, limits: limit, reserved: reserved,
		nodes: nodes, unshared: unshared}
}

// NodesChanged makes what can never run be found again on the nodes as they are now.
func (ch *Checker) NodesChanged() { ch.empty = nil }

// Check says why a job as specified is refused at once; "" if it is accepted.
func (ch *Checker) Check(s *cluster.Job) string {
	if _, text := ch.CheckSpec(s); text != "" {
		return text
	}
	j := &job.State{Tenure: &ch.none, Spec: s, Shape: ch.ShapeOf(s), User: ch.limits.User(s.User)}
	q, _ := ch.limits.Of(s)
	j.Queue = int32(q)
	j.Milli = ch.world.AskedMilli(j)
	return ch.Never(j)
}

// CheckSpec validates the numbers and names of a spec and finds its queue; text says what is wrong, "": nothing.
func (ch *Checker) CheckSpec(s *cluster.Job) (queue int, text string) {
	if text = ch.CheckTasks(s); text != "" {
		return 0, text
	}
	switch {
	case s.Limit < 0 || s.Estimate < 0 || s.Limit > cluster.MaxDuration || s.Estimate > cluster.MaxDuration:
		return 0, "limit and estimate must be between 0 and 100 years"
	case min(s.Checkpoint.Interval, s.Checkpoint.Cost, s.Checkpoint.Restart, s.Checkpoint.Suspend) < 0:
		return 0, "checkpoint interval, cost, restart and suspension must not be negative"
	case s.Tier > cluster.BestEffort || s.Kind > cluster.Trial || s.Topology.Level > cluster.LevelTop:
		return 0, "tier, kind or topology level is out of range"
	case s.PerNode < 0 || s.PerNode > cluster.MaxTasks:
		return 0, fmt.Sprintf("%d tasks on one node; between 1 and %d are possible, 0 for as many as fit", s.PerNode,
			cluster.MaxTasks)
	case s.Array != nil && (s.Array.Cap < 0 || s.Array.ID < 0 || s.Array.ID > s.ID):
		return 0, "array: the cap must not be negative and the id must be that of the first element"
	}
	for _, d := range s.After {
		if text = checkDependency(s.ID, &d); text != "" {
			return 0, text
		}
	}
	if text = ch.checkPartitions(s); text != "" {
		return 0, text
	}
	if text = ch.checkNodeLimits(s.NodeLimits); text != "" {
		return 0, text
	}
	if text = ch.CheckNodes(s); text != "" {
		return 0, text
	}
	if s.Reservation != "" {
		if text = ch.reserved.WhyNot(s); text != "" {
			return 0, text
		}
	}
	queue, err := ch.limits.Of(s)
	if err != nil {
		return 0, err.Error()
	}
	return queue, ""
}

// CheckTasks says what is wrong with the task sets of a job; "": nothing.
func (ch *Checker) CheckTasks(s *cluster.Job) string {
	if text := job.CheckTasks(s); text != "" {
		return text
	}
	for i := range s.Tasks {
		if text := s.Tasks[i].Request.Unshareable(ch.spec.Sharing); text != "" {
			return fmt.Sprintf("task set %d: %s", i, text)
		}
	}
	return ""
}

func checkDependency(id cluster.JobID, d *cluster.Dependency) string {
	switch {
	case d.Type > cluster.AfterStart || d.Elements < 0 || d.Elements > cluster.MaxTasks:
		return "dependency: type or number of elements is out of range"
	case d.Delay != 0 && d.Type != cluster.AfterStart || d.Delay < 0 || d.Delay > cluster.MaxDuration:
		return "dependency: a delay goes with after only, and is not negative"
	case d.Type == cluster.Singleton:
	case d.Job < 0 || d.Job >= id || d.Last() >= id:
		return fmt.Sprintf("dependency on job %d: a job can only wait for one that was submitted before it", d.Last())
	}
	return ""
}

func (ch *Checker) checkPartitions(s *cluster.Job) string {
	parts := ch.spec.Partitions
	if len(parts) == 0 {
		if len(s.Partitions) > 0 {
			return fmt.Sprintf("partition %q: this cluster has no partitions", s.Partitions[0])
		}
		return ""
	}
	var names []string
	for i := range parts {
		names = append(names, parts[i].Name)
	}
	for _, n := range s.Partitions {
		if cluster.Nearest(n, names) != n {
			return cluster.Unknown("partition", n, names).Error()
		}
	}
	mask, text := ch.world.Shapes.PartMask(s.Partitions), ""
	for i := range parts {
		if mask>>i&1 == 0 {
			continue
		}
		if t := ch.checkPartition(&parts[i], s); t == "" {
			return "" // one of the named partitions will do
		} else if text == "" {
			text = t
		}
	}
	return text
}

func (ch *Checker) checkPartition(p *cluster.Partition, s *cluster.Job) string {
	if p.MaxTime > 0 && s.Limit > p.MaxTime {
		return fmt.Sprintf("time limit %s is beyond partition %s's %s", cluster.FormatDuration(s.Limit), p.Name,
			cluster.FormatDuration(p.MaxTime))
	}
	if p.MaxGPUs > 0 && s.GPUs() > p.MaxGPUs {
		return fmt.Sprintf("%d GPUs; partition %s allows %d in one job", s.GPUs(), p.Name, p.MaxGPUs)
	}
	if len(p.Tiers) > 0 {
		ok := false
		for _, t := range p.Tiers {
			ok = ok || t == s.Tier
		}
		if !ok {
			return fmt.Sprintf("partition %s does not take %s jobs", p.Name, s.Tier)
		}
	}
	if len(p.Queues) == 0 {
		return ""
	}
	if q, ok := ch.limits.Index(s.Queue); ok {
		for _, a := range ch.world.Tree.Path(q) {
			for _, allowed := range p.Queues {
				if ch.world.Tree.Name(a) == allowed {
					return ""
				}
			}
		}
	}
	return fmt.Sprintf("partition %s does not take jobs of queue %q", p.Name, s.Queue)
}

// Never says why the job can never run on this cluster, what it asked and the
// most there is; "" if it can. It is decided once for each shape, by placing
// the gang on the cluster as if it were empty and healthy.
func (ch *Checker) Never(j *job.State) string {
	s := ch.world.Shapes.At(j.Shape)
	if s.Judged != len(ch.world.Store.Nodes()) {
		s.Judged, s.Verdict = len(ch.world.Store.Nodes()), ch.judge(j, s)
	}
	if s.Verdict != "" && !(ch.world.Divided(j) && j.Spec.Tier != cluster.Critical && ch.instanceFor(s)) {
		return s.Verdict
	}
	return ch.limits.Beyond(j)
}

func (ch *Checker) judge(j *job.State, s *shape.Shape) string {
	if s.Any.Empty() {
		return ch.whyNoClass(s)
	}
	r := placement.Request{In: ch.blank(), Placer: ch.placer, IgnoreUsage: true}
	mark := r.In.Mark()
	_, ok := ch.places.Place(r, j, s, s.Min)
	r.In.Rollback(mark)
	if ok {
		return ""
	}
	text := "asks for " + askedText(s)
	if s.Most.Any > 0 {
		text += fmt.Sprintf(", at most %d on a node", s.Most.Any)
	}
	if s.Topo.Required {
		text += fmt.Sprintf(" within one %s", s.Topo.Level)
	}
	text += "; even the empty cluster cannot hold that"
	if help := ch.noInstanceText(s); help != "" {
		return text + ": " + help
	}
	return text + fmt.Sprintf(" (%d suitable GPUs)", ch.suitableGPUs(s))
}

func (ch *Checker) whyNoClass(s *shape.Shape) string {
	classes := ch.world.Store.Classes()
	if len(classes) == 0 {
		return "the cluster has no nodes"
	}
	if len(s.Types) > 0 {
		var have []string
		found := false
		for ci := range classes {
			name := classes[ci].Model().Name
			if !slices.Contains(have, name) {
				have = append(have, name)
			}
			for _, t := range s.Types {
				found = found || cluster.MatchModel(name, t)
			}
		}
		if !found {
			return cluster.Unknown("GPU type", s.Types[0], have).Error()
		}
	}
	text, most := "", 0
	for i := range s.Sets { // the set that fits nowhere, else one that fits least
		misfits, why := 0, ""
		for ci := range classes {
			c := &classes[ci]
			if c.Partitions()&ch.world.Shapes.PartMask(s.Partitions) != 0 && s.ReachesClass(int32(ci)) {
				if t := inventory.WhyNotClass(&s.Sets[i].Request, c); t != "" {
					misfits, why = misfits+1, t
				}
			}
		}
		if misfits > most {
			text, most = why, misfits
		}
	}
	switch {
	case text == "" && s.Most.Within != nil:
		return "no node that it may be on has what it asks for"
	case text == "":
		return "no node of its partitions has what it asks for"
	}
	return text
}

// blank returns the nodes as they would be empty and healthy.
func (ch *Checker) blank() *inventory.Store {
	if ch.empty != nil && len(ch.empty.Nodes()) == len(ch.world.Store.Nodes()) {
		return ch.empty
	}
	ch.empty = ch.world.Store.Blank()
	return ch.empty
}

// askedText says what a gang that never fits asks for.
func askedText(s *shape.Shape) string {
	if s.Partly() {
		return words.Asks(s)
	}
	text := words.GPUs(s.GPUs)
	for i := range s.Sets {
		n := s.Sets[i].Count
		if i == 0 {
			n = int(s.Min)
		}
		text += fmt.Sprintf("%s %d x %d", [...]string{" in tasks of", " and"}[min(i, 1)], n, s.Sets[i].Request.GPUs)
	}
	return text
}

// noInstanceText says what to do where no GPU can have an instance that the shape asks
// for, because those that there are stay as they are; "": that is not so.
func (ch *Checker) noInstanceText(s *shape.Shape) string {
	for i := range s.Sets {
		r := &s.Sets[i].Request
		if r.Profile == "" {
			continue
		}
		cut := false
		for id := range ch.world.Store.Nodes() {
			n := &ch.world.Store.Nodes()[id]
			if !s.Suits[i].Has(n.Class()) {
				continue
			}
			if n.Fixed() == nil || n.Fixed().Made() != 0 ||
				n.HasInstance(ch.world.Store.Classes()[n.Class()].Model(), r.Profile) {
				return ""
			}
			cut = cut || n.Fixed().Cut() != 0
		}
		text, by := "no GPU in MIG mode has such a slice", "nvidia-smi mig -cgi makes one"
		if !cut {
			text, by = "no GPU is in MIG mode", "nvidia-smi -mig 1 switches it on"
		}
		if ch.unshared { // another component cuts the GPUs there: no advice on how
			return text
		}
		return text + "; " + by + ", or sharing.mig: dynamic has Muster do it (docs/howto/share-a-gpu.md)"
	}
	return ""
}

// Narrowed is the shape of a job as a target has it; -1: it can never run so. It
// tries placements: not while one is being looked for.
func (ch *Checker) Narrowed(of *cluster.Job, t *job.Target, base int32) int32 {
	if t.Tasks == 0 && t.GPU == "" && t.Partition == "" && t.Within == cluster.LevelAny {
		return base
	}
	model := t.Tasks == 0 && t.Partition == "" && t.Within == cluster.LevelAny
	if shape := ch.world.Shapes.Get(base).OnModel(t.GPU); model && shape >= 0 &&
		ch.world.Shapes.Get(shape).Judged == len(ch.world.Store.Nodes()) {
		if ch.world.Shapes.Get(shape).Verdict != "" {
			return -1
		}
		return shape
	}
	spec := *of
	if t.Tasks > 0 {
		spec.Tasks = append([]cluster.TaskSet(nil), spec.Tasks...)
		spec.Tasks[0].Count = t.Tasks
		spec.Elastic = cluster.Elastic{}
		if t.Least < t.Tasks {
			spec.Elastic = cluster.Elastic{Min: t.Least, Max: t.Tasks}
		}
	}
	if t.GPU != "" {
		spec.GPUTypes = []string{t.GPU}
	}
	if t.Partition != "" {
		spec.Partitions = []string{t.Partition}
	}
	if t.Within != cluster.LevelAny {
		spec.Topology = cluster.Topology{Level: t.Within, Required: true}
	}
	shapeID := ch.ShapeOf(&spec)
	s := ch.world.Shapes.At(shapeID)
	if s.Judged != len(ch.world.Store.Nodes()) {
		tried := &job.State{Tenure: &ch.none, Spec: &spec, Shape: shapeID}
		s.Judged, s.Verdict = len(ch.world.Store.Nodes()), ch.judge(tried, s)
	}
	if b := ch.world.Shapes.Get(base); model && b.OnModel(t.GPU) < 0 {
		b.Models = append(b.Models, shape.ModelShape{GPU: t.GPU, Shape: shapeID})
	}
	if s.Verdict != "" {
		return -1
	}
	return shapeID
}

// ShapeOf is the shape of a job.
func (ch *Checker) ShapeOf(j *cluster.Job) int32 {
	id, first := ch.world.Shapes.Of(j)
	if first && ch.world.Shapes.Get(id).Sliced() {
		ch.places.Ask(id)
	}
	return id
}

// CheckNodes says what is wrong with the set of nodes that a job names.
func (ch *Checker) CheckNodes(s *cluster.Job) string {
	if s.Nodes != "" && ch.world.Shapes.NodeSet(s.Nodes) == nil {
		return fmt.Sprintf("node set %q: no set has that name", s.Nodes)
	}
	return ""
}

// checkNodeLimits says what is wrong with bounds of nodes.
func (ch *Checker) checkNodeLimits(limits []cluster.NodeLimit) string {
	for i := range limits {
		l := &limits[i]
		if len(l.Nodes) == 0 || l.Tasks < 0 || l.Tasks > cluster.MaxTasks {
			return fmt.Sprintf("node limits: %d tasks on %d nodes; between 0 and %d on at least one are possible",
				l.Tasks, len(l.Nodes), cluster.MaxTasks)
		}
		for _, name := range l.Nodes {
			if _, ok := ch.nodes[name]; !ok {
				var names []string
				for k := range ch.world.Store.Nodes() {
					names = append(names, ch.world.Store.Nodes()[k].Spec().Name)
				}
				return "node limits: " + cluster.Unknown("node", name, names).Error()
			}
		}
	}
	return ""
}

// suitableGPUs counts the GPUs of the nodes that the shape competes for.
func (ch *Checker) suitableGPUs(s *shape.Shape) (n int) {
	for ci := range ch.world.Store.Classes() {
		c := &ch.world.Store.Classes()[ci]
		switch {
		case !s.Any.Has(int32(ci)):
		case s.Most.Within == nil:
			n += c.GPUs() * len(c.Nodes())
		default:
			for _, id := range c.Nodes() {
				if s.Reaches(id) {
					n += c.GPUs()
				}
			}
		}
	}
	return n
}

// instanceFor reports whether a GPU in MIG mode has, or can have, an instance for
// jobs of the shape: where all GPUs are in MIG mode, it could never run otherwise.
func (ch *Checker) instanceFor(s *shape.Shape) bool {
	if ch.world.Oracle.Undivided() {
		return false
	}
	need := s.Sets[0].Request.Memory
	for i := range ch.world.Store.Nodes() {
		n := &ch.world.Store.Nodes()[i]
		if n.Fixed() == nil || !s.Suits[0].Has(n.Class()) {
			continue
		}
		model := ch.world.Store.Classes()[n.Class()].Model()
		if n.Fixed().Made() != 0 &&
			slices.ContainsFunc(model.Profiles, func(p cluster.SliceProfile) bool { return p.Memory >= need }) {
			return true
		}
		for _, list := range n.Fixed().Instances() {
			if slices.ContainsFunc(list, func(in inventory.Instance) bool {
				p, ok := model.Profile(in.Profile())
				return ok && p.Memory >= need
			}) {
				return true
			}
		}
	}
	return false
}

// Admits reports whether a partition's rules let a job in.
func (ch *Checker) Admits(name string, spec *cluster.Job) bool {
	for i := range ch.spec.Partitions {
		if p := &ch.spec.Partitions[i]; p.Name == name {
			return ch.checkPartition(p, spec) == ""
		}
	}
	return false
}
