//go:build linux

package local

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/dscp"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/traffic"
	"github.com/muster-gpu/muster/show"
)

// treated is what is done of how the network is to treat the traffic of jobs.
type treated struct {
	again  chan struct{} // something changed
	mu     sync.Mutex
	marks  map[string]dscp.State // by group of a task
	claims map[cluster.JobID]*traffic.Claim
	port   traffic.Port
	host   string // name of this machine; "": unknown
}

func (x *treated) init(q *config.QoS) {
	x.again, x.claims, x.port.Interface = make(chan struct{}, 1), map[cluster.JobID]*traffic.Claim{}, q.Interface
	x.host, _ = os.Hostname() // without it no link is this machine's
}

func (x *treated) changed() {
	select {
	case x.again <- struct{}{}:
	default:
	}
}

// carryEvery is how often it is looked into whether processes of jobs entered other network namespaces.
const carryEvery = time.Second

// carryTreatments marks what jobs send, until the daemon ends; the marks stay. Nothing is done on a machine whose jobs
// are not treated and were not.
func (m *Machine) carryTreatments() {
	defer m.runners.Done()
	marker := dscp.New(m.groups, m.keeper.State())
	tick := time.NewTicker(carryEvery)
	defer tick.Stop()
	for idle := false; ; {
		want := m.marksWanted()
		m.traffic.mu.Lock()
		m.traffic.port.Sample(m.opt.Now())
		m.traffic.mu.Unlock()
		if len(want) > 0 || !idle {
			m.traffic.note(marker.Set(want), m.opt.Log)
			m.judgeClaims(m.opt.Now())
		}
		idle = len(want) == 0
		select {
		case <-m.running.Done():
			return
		case <-m.traffic.again:
		case <-tick.C:
		}
	}
}

// note keeps what became of marks, and logs what is new in that.
func (x *treated) note(states map[string]dscp.State, log *slog.Logger) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, s := range states {
		if errors.Is(s.Err, fs.ErrNotExist) { // it is about to begin, or has ended
			delete(states, name)
			continue
		}
		if old := x.marks[name].Err; s.Err != nil && (old == nil || old.Error() != s.Err.Error()) {
			log.Warn("the traffic of a task is not marked", "task", name, "error", s.Err)
		}
	}
	x.marks = states
}

// judgeClaims compares what jobs say of their traffic with what was counted of those that are marked, and tells the
// engine where another is to be believed.
func (m *Machine) judgeClaims(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	for id := range m.traffic.claims {
		if j := m.jobs[id]; j == nil || j.run == nil {
			delete(m.traffic.claims, id)
		}
	}
	card := m.traffic.card(m.jobs)
	for id, j := range m.jobs {
		marks := m.traffic.of(j.run)
		if len(marks) == 0 {
			continue
		}
		c := m.traffic.claims[id]
		if c == nil {
			c = &traffic.Claim{}
			m.traffic.claims[id] = c
		}
		on, yes := m.eng.OnNetwork(id)
		own := traffic.Card{}
		if slices.ContainsFunc(j.Spec.Hosts, func(host string) bool { return traffic.Own(host, m.traffic.host) }) {
			own = card
		}
		if yes && c.Sample(now, marks, own, on.Takes) && c.Judge(on.Traffic, on.Alone, len(j.Spec.Hosts)) {
			m.event(engine.Event{Type: engine.Progress, Job: id, Traffic: &cluster.Traffic{Bytes: c.Believed()}})
		}
	}
}

// card is what this machine's card sent by RDMA.
func (x *treated) card(jobs map[cluster.JobID]*job) traffic.Card {
	running := 0
	for _, j := range jobs {
		if j.run != nil {
			running++
		}
	}
	c := x.port.Card()
	c.Alone = running == 1
	return c
}

// believed puts into what a job reports of its traffic what was counted of it, where that is believed.
func (x *treated) believed(id cluster.JobID, t *cluster.Traffic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.claims[id]; c != nil && c.Counted > 0 && t != nil {
		if t.Bytes > 0 {
			c.Bytes = t.Bytes
		}
		t.Bytes = max(t.Bytes, c.Counted)
	}
}

// of is what became of the marks of a run's tasks; nil: there is no run, or not all of them have begun.
func (x *treated) of(r *runner) (marks []dscp.State) {
	for _, name := range r.groups() {
		s, known := x.marks[name]
		if !known {
			return nil
		}
		marks = append(marks, s)
	}
	return marks
}

// marksWanted is the DSCP that each task's traffic is to bear, by its group.
func (m *Machine) marksWanted() map[string]uint8 {
	want := map[string]uint8{}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, j := range m.jobs {
		t := m.treatment(j)
		if t == nil || j.run == nil {
			continue
		}
		if mark, ok := m.opt.Network.Mark(t.Class); ok {
			for _, name := range j.run.groups() {
				want[name] = mark.DSCP
			}
		}
	}
	return want
}

// groups are the control groups of the run's tasks, by rank; nil: there is no run.
func (r *runner) groups() (names []string) {
	if r == nil {
		return nil
	}
	for rank := range r.size() {
		names = append(names, run.GroupName(r.m.keeper.Mark(r.ID, r.N, rank)))
	}
	return names
}

// size is how many tasks the run has.
func (r *runner) size() (n int) {
	for i := range r.job.Info.On {
		n += int(r.job.Info.On[i].Tasks)
	}
	return n
}

// treatment is how a job's traffic is to be treated now; nil: as any other.
func (m *Machine) treatment(j *job) *cluster.Treatment {
	if rec := m.eng.Record(j.ID); rec != nil && rec.State != engine.Done {
		return rec.Treatment
	}
	return nil
}

// treatmentChanged is called when a job's traffic is to be treated otherwise than before. The state is locked.
func (m *Machine) treatmentChanged(j *job) {
	if j.run == nil {
		return
	}
	if err := j.run.writeTreatment(); err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is about to begin
		m.opt.Log.Warn("a job is not told how its traffic is treated", "job", j.ID, "error", err)
	}
	m.traffic.changed()
}

// checkHosts refuses a job that transmits to hosts that the network does not have.
func (m *Machine) checkHosts(j *cluster.Job) error {
	var known []string
	if n := m.opt.Rules.Spec.Network; n != nil {
		known = n.Hosts
	}
	for _, name := range j.Hosts {
		if !slices.Contains(known, name) {
			return &ask.FieldError{Field: "traffic.hosts", Text: cluster.Unknown("host", name, known).Error()}
		}
	}
	return nil
}

// tellsTreatment reports whether jobs are told how their traffic is treated.
func (m *Machine) tellsTreatment() bool { return m.opt.Rules.Spec.Network != nil }

// trafficVariables are what a run finds in its environment of its traffic.
func (r *runner) trafficVariables() []string {
	env := r.m.opt.Network.Variables(r.job.Info.Began, r.job.Sub.Env)
	if r.m.tellsTreatment() {
		env = append(env, traffic.FileVariable+"="+r.treatmentFile())
	}
	return env
}

func (r *runner) treatmentFile() string {
	return filepath.Join(r.m.keeper.RunDir(r.ID, r.N), traffic.FileName)
}

// tellTreatment is writeTreatment for the runner.
func (r *runner) tellTreatment() error {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	return r.writeTreatment()
}

// writeTreatment writes how a run's traffic is treated where its tasks read it. The state is locked.
func (r *runner) writeTreatment() error {
	if !r.m.tellsTreatment() {
		return nil
	}
	text := config.Slots(r.m.treatment(r.job))
	path := r.treatmentFile()
	tmp := path + ".new" + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(tmp, text, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// networkOf is what people see of how a running job's traffic is treated. The state is locked.
func (m *Machine) networkOf(j *job) *show.Network {
	s := j.Info.Record.State
	if s < engine.Starting || s > engine.Stopping || j.run == nil {
		return nil
	}
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	marks := traffic.Marks(m.traffic.of(j.run))
	n := m.opt.Network.Treated(j.Info.Began, j.Info.Record.Treatment, marks, j.Info.Progress)
	if c := m.traffic.claims[j.ID]; c != nil && n != nil {
		n.Counted = c.Text()
	}
	return n
}
