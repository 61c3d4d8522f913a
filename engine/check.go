package engine

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Check says why a job as specified is refused at once; "" if it is accepted.
// Drivers call it before they accept a submission; Submitted events that fail
// it are answered with Reject.
func (e *Engine) Check(s *cluster.Job) string {
	if _, text := e.check(s); text != "" {
		return text
	}
	j := &job.State{Tenure: &e.none, Spec: s, Shape: e.shapeOf(s), User: e.limits.User(s.User)}
	q, _ := e.limits.Of(s)
	j.Queue = int32(q)
	j.Milli = e.w.AskedMilli(j)
	return e.never(j)
}

// check validates the numbers and names of a spec and finds its queue.
func (e *Engine) check(s *cluster.Job) (queue int, text string) {
	if text = job.CheckTasks(s); text != "" {
		return 0, text
	}
	for i := range s.Tasks {
		if text = s.Tasks[i].Request.Unshareable(e.cfg.Spec.Sharing); text != "" {
			return 0, fmt.Sprintf("task set %d: %s", i, text)
		}
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
	if text = e.checkPartitions(s); text != "" {
		return 0, text
	}
	if text = e.checkNodeLimits(s.NodeLimits); text != "" {
		return 0, text
	}
	if text = e.checkNodes(s); text != "" {
		return 0, text
	}
	if s.Reservation != "" {
		if text = e.resv.WhyNot(s); text != "" {
			return 0, text
		}
	}
	queue, err := e.limits.Of(s)
	if err != nil {
		return 0, err.Error()
	}
	return queue, ""
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

func (e *Engine) checkPartitions(s *cluster.Job) string {
	if len(e.parts) == 0 {
		if len(s.Partitions) > 0 {
			return fmt.Sprintf("partition %q: this cluster has no partitions", s.Partitions[0])
		}
		return ""
	}
	var names []string
	for i := range e.parts {
		names = append(names, e.parts[i].spec.Name)
	}
	for _, n := range s.Partitions {
		if cluster.Nearest(n, names) != n {
			return cluster.Unknown("partition", n, names).Error()
		}
	}
	mask, text := e.shapes.PartMask(s.Partitions), ""
	for i := range e.parts {
		if mask>>i&1 == 0 {
			continue
		}
		if t := e.checkPartition(&e.parts[i].spec, s); t == "" {
			return "" // one of the named partitions will do
		} else if text == "" {
			text = t
		}
	}
	return text
}

func (e *Engine) checkPartition(p *cluster.Partition, s *cluster.Job) string {
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
	if q, ok := e.limits.Index(s.Queue); ok {
		for _, a := range e.w.Tree.Path(q) {
			for _, allowed := range p.Queues {
				if e.w.Tree.Name(a) == allowed {
					return ""
				}
			}
		}
	}
	return fmt.Sprintf("partition %s does not take jobs of queue %q", p.Name, s.Queue)
}

// never says why the job can never run on this cluster, what it asked and the
// most there is; "" if it can. It is decided once for each shape, by placing
// the gang on the cluster as if it were empty and healthy.
func (e *Engine) never(j *job.State) string {
	s := e.shapes.At(j.Shape)
	if s.Judged != len(e.st.Nodes()) {
		s.Judged, s.Verdict = len(e.st.Nodes()), e.judge(j, s)
	}
	if s.Verdict != "" && !(e.w.Divided(j) && j.Spec.Tier != cluster.Critical && e.instanceFor(s)) {
		return s.Verdict
	}
	return e.limits.Beyond(j)
}

func (e *Engine) judge(j *job.State, s *shape.Shape) string {
	if s.Any.Empty() {
		return e.whyNoClass(s)
	}
	r := placement.Request{In: e.blank(), Placer: e.cfg.Placer, IgnoreUsage: true}
	mark := r.In.Mark()
	_, ok := e.find.Place(r, j, s, s.Min)
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
	if help := e.noInstanceText(s); help != "" {
		return text + ": " + help
	}
	return text + fmt.Sprintf(" (%d suitable GPUs)", e.suitableGPUs(s))
}

func (e *Engine) whyNoClass(s *shape.Shape) string {
	classes := e.st.Classes()
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
			if c.Partitions()&e.shapes.PartMask(s.Partitions) != 0 && s.ReachesClass(int32(ci)) {
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
func (e *Engine) blank() *inventory.Store {
	if e.empty != nil && len(e.empty.Nodes()) == len(e.st.Nodes()) {
		return e.empty
	}
	e.empty = e.st.Blank()
	return e.empty
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
func (e *Engine) noInstanceText(s *shape.Shape) string {
	for i := range s.Sets {
		r := &s.Sets[i].Request
		if r.Profile == "" {
			continue
		}
		cut := false
		for id := range e.st.Nodes() {
			n := &e.st.Nodes()[id]
			if !s.Suits[i].Has(n.Class()) {
				continue
			}
			if n.Fixed() == nil || n.Fixed().Made() != 0 ||
				n.HasInstance(e.st.Classes()[n.Class()].Model(), r.Profile) {
				return ""
			}
			cut = cut || n.Fixed().Cut() != 0
		}
		text, by := "no GPU in MIG mode has such a slice", "nvidia-smi mig -cgi makes one"
		if !cut {
			text, by = "no GPU is in MIG mode", "nvidia-smi -mig 1 switches it on"
		}
		if e.cfg.Unshared { // another component cuts the GPUs there: no advice on how
			return text
		}
		return text + "; " + by + ", or sharing.mig: dynamic has Muster do it (docs/howto/share-a-gpu.md)"
	}
	return ""
}
