//go:build linux

// Package machine runs services on this machine: replicas are jobs of the services' owners, services are kept in the
// daemon's database, and the gateway is a process beside the daemon.
package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/watch"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/control"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/show"
)

// Machine is the daemon's machine, as services need it.
type Machine struct {
	m       *local.Machine
	changes *watch.Watch
	stop    func()

	mu     sync.Mutex
	list   []show.Job       // as last seen
	beside map[int][]string // by replica: models of the other jobs in shares of its GPUs
	seen   bool
}

// New makes services run on a machine.
func New(m *local.Machine) *Machine {
	x := &Machine{m: m}
	x.changes, x.stop = m.Watches().Watch()
	return x
}

// Close stops watching the machine.
func (x *Machine) Close() { x.stop() }

// Submit submits a job for a replica.
func (x *Machine) Submit(ctx context.Context, s *control.Service, k scale.Kind, port, inPlaceOf int) (int, error) {
	owner := account.UserNamed(s.Owner)
	owner.Trusted = s.Trusted
	j := submission(&s.Service, s.Generation, k, port)
	j.Replica.Replaces = inPlaceOf
	ids, err := x.m.Submit(ctx, owner, j, "")
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// Test reports as an error why replicas of a service could never be submitted by a user.
func (x *Machine) Test(s *service.Service, by control.Caller) error {
	u := account.UserNamed(by.User)
	u.Trusted = by.Operator
	p, err := scale.New(s.Scaling)
	if err != nil {
		return err
	}
	if least := x.m.Offers().Return; s.Lend.Within > 0 && s.Lend.Within < least {
		return fmt.Errorf("lend: within %v no job is sure to have left: kill_wait makes it %v at least", s.Lend.Within,
			least)
	}
	_, plans := p.(scale.Planner)
	for i := range s.Variants {
		v := &s.Variants[i]
		k := scale.Kind{Variant: i, Share: v.Share()}
		if _, err := x.m.Test(u, submission(s, "", k, 1)); err != nil {
			return fmt.Errorf("variants[%d]: %w", i, err)
		}
		if !plans || v.Request.GPUs != 1 || v.Request.Profile != "" {
			continue
		}
		k.Share = cluster.Whole / 2
		if _, err := x.m.Test(u, submission(s, "", k, 1)); err != nil {
			return fmt.Errorf("scaling: variants[%d] on a part of a GPU: %w", i, err)
		}
	}
	return nil
}

// submission is the job of a replica.
func submission(s *service.Service, generation string, k scale.Kind, port int) *ask.Submission {
	v := &s.Variants[k.Variant]
	text, on := strconv.Itoa(port), v.Parallel()
	tensor, pipeline := strconv.Itoa(on.TP), strconv.Itoa(on.PP)
	holes := []string{"{port}", text, "{name}", s.Name}
	if v.Language != nil {
		holes = append(holes, "{tensor}", tensor, "{pipeline}", pipeline)
	}
	fill := strings.NewReplacer(holes...)
	r := v.Sized(k.Share)
	j := &ask.Submission{Name: s.Name, Queue: s.Queue, Tier: s.Tier.String(), Kind: cluster.Service.String(),
		GPUs: r.GPUs, Share: int64(r.Share), Memory: int64(r.Memory), Profile: r.Profile, CPU: int64(r.CPU),
		RAM:      int64(r.RAM),
		GPUTypes: v.GPUTypes, Dir: v.Dir, Attached: true, Model: v.Name, Prompt: true,
		Signal: "TERM", // it stops rather than saves when its GPUs are taken
		Replica: &ask.Replica{Service: s.Name, Variant: v.Name, Generation: generation, Port: port,
			Within: s.Lend.Within, Replace: v.ReplacedWithin()}}
	if r.Fractional() && v.Language == nil && len(v.Profile) > 0 { // beside others a batch still takes half of the goal
		most := 2 * v.Profile.Takes(k.Share, 1)
		j.MinSpeed = min(1, math.Ceil(100*most.Seconds()/s.Goal.Latency.Seconds())/100)
	}
	for _, arg := range v.Command {
		j.Command = append(j.Command, fill.Replace(arg))
	}
	for name, value := range v.Env {
		j.Env = append(j.Env, name+"="+fill.Replace(value))
	}
	slices.Sort(j.Env)
	j.Env = append(j.Env, "PORT="+text, "MUSTER_PORT="+text, "MUSTER_SERVICE="+s.Name, "MUSTER_VARIANT="+v.Name)
	if v.Language != nil {
		j.Env = append(j.Env, "MUSTER_TENSOR="+tensor, "MUSTER_PIPELINE="+pipeline)
	}
	return j
}

// Cancel ends a replica.
func (x *Machine) Cancel(ctx context.Context, job int) error {
	return x.m.Act(ctx, job, "cancel", "muster")
}

// Replicas lists the jobs that are not over.
func (x *Machine) Replicas(context.Context) ([]control.Job, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.changes.C:
		x.changes.Take()
		x.seen = false
	default:
	}
	if !x.seen {
		x.list, x.beside, x.seen = x.m.Replicas(), x.m.Beside(), true
	}
	list := make([]control.Job, 0, len(x.list))
	for i := range x.list {
		list = append(list, job(&x.list[i]))
		list[i].Beside = x.beside[list[i].ID]
	}
	return list, nil
}

// Replica returns a job, over or not.
func (x *Machine) Replica(ctx context.Context, id int) (control.Job, error) {
	j, err := x.m.Job(ctx, id)
	if err != nil {
		return control.Job{}, err
	}
	if j.Submission.Replica == nil {
		return control.Job{}, fmt.Errorf("job %d is no replica", id)
	}
	return job(&j), nil
}

// job is a job as services look at it.
func job(j *show.Job) control.Job {
	r := j.Submission.Replica
	c := control.Job{ID: j.ID, Service: r.Service, Variant: r.Variant, Generation: r.Generation, Port: r.Port,
		Share: cmp.Or(cluster.Milli(j.Submission.Share), cluster.Whole),
		User:  j.User, Submitted: j.Submitted, Outcome: j.Reason, Loan: j.Loan, Moves: j.Moves, InPlaceOf: r.Replaces}
	if j.Started != nil {
		c.Started = *j.Started
	}
	for _, d := range j.Devices {
		c.Devices = append(c.Devices, deviceText(&d))
		c.GPUs = append(c.GPUs, cmp.Or(d.Parent, d.UUID))
	}
	switch j.State {
	case show.StatePending:
		c.State = control.Waits
	case show.StateStarting, show.StateRunning:
		c.State = control.Starts
	case show.StateSuspended, show.StateStopping:
		if c.State = control.Suspends; j.Moves { // it goes on
			c.State = control.Starts
		}
	default:
		c.State = control.Over
		c.Failed = j.State != show.StateCancelled && j.State != show.StatePreempted
		if c.Outcome == "" {
			c.Outcome = "it ended: " + j.State
		}
	}
	return c
}

func deviceText(d *show.Device) string {
	text := "GPU " + strconv.Itoa(d.Index)
	if d.Share > 0 {
		text += fmt.Sprintf(" (%g %%)", float64(d.Share)/10)
	}
	if d.Profile != "" {
		text += " (" + d.Profile + ")"
	}
	return text
}

// Check reports as an error that what listens at a replica's port is not a process of its owner: any user of
// the machine can listen at any port.
func (x *Machine) Check(j *control.Job) error {
	owner := account.UserNamed(j.User)
	return listens(owner.UID, j.Port)
}

// GPUs are the machine's, by model.
func (x *Machine) GPUs() (list []scale.GPUs) {
	for _, n := range x.m.Nodes() {
		for i := range n.GPUs {
			k := slices.IndexFunc(list, func(g scale.GPUs) bool { return g.Model == n.GPUs[i].Model })
			if k < 0 {
				k, list = len(list), append(list, scale.GPUs{Model: n.GPUs[i].Model})
			}
			list[k].Number++
		}
	}
	return list
}

// Lent lists the jobs that would make room if so many more replicas of a service came now.
func (x *Machine) Lent(s *control.Service, k scale.Kind, replicas int) ([]int, error) {
	owner := account.UserNamed(s.Owner)
	owner.Trusted = s.Trusted
	return x.m.Lent(owner, submission(&s.Service, s.Generation, k, 1), replicas)
}

// SetLenders says which services lend what they do not run.
func (x *Machine) SetLenders(list []control.Lender) error {
	var lenders []local.Lender
	for _, l := range list {
		owner := account.UserNamed(l.Service.Owner)
		owner.Trusted = l.Service.Trusted
		lenders = append(lenders, local.Lender{Owner: owner, Replicas: l.Replicas,
			Replica: submission(&l.Service.Service, l.Service.Generation, l.Kind, 1)})
	}
	return x.m.Lend(lenders)
}

// Slowed says what is left of a replica's speed beside those on its GPUs, as it was measured.
func (x *Machine) Slowed(job int, part float64) { x.m.Slowed(job, part) }

// SetLent says in words, by job, which service lends it what it holds.
func (x *Machine) SetLent(by map[int]string) { x.m.Loans().Say(by) }

// kept is a service in the database.
type kept struct {
	ask.ServiceFile
	Owner   string            `json:"owner"`
	Trusted bool              `json:"trusted,omitempty"`
	Applied time.Time         `json:"applied"`
	Scaled  *service.Replicas `json:"scaled,omitempty"`
}

// Services reads the services that were applied.
func (x *Machine) Services(ctx context.Context) ([]control.Service, error) {
	book := x.m.Audit()
	rows, err := book.Services(ctx)
	if err != nil {
		return nil, err
	}
	var list []control.Service
	for _, data := range rows {
		var k kept
		if err := json.Unmarshal(data, &k); err != nil {
			return nil, fmt.Errorf("stored service: %w", err)
		}
		spec, err := control.Read(&k.ServiceFile)
		if err != nil {
			return nil, fmt.Errorf("stored service: %w", err)
		}
		list = append(list, control.Service{Service: *spec, File: k.ServiceFile, Owner: k.Owner, Trusted: k.Trusted,
			Applied:    k.Applied,
			Generation: control.Generation(spec), Scaled: k.Scaled})
		data, err := book.ServiceKnown(ctx, spec.Name)
		if err == nil && data != nil {
			err = json.Unmarshal(data, &list[len(list)-1].Known)
		}
		if err != nil {
			return nil, fmt.Errorf("what is known of service %s: %w", spec.Name, err)
		}
	}
	return list, nil
}

// PutService keeps a service.
func (x *Machine) PutService(ctx context.Context, s *control.Service) error {
	data, err := json.Marshal(kept{s.File, s.Owner, s.Trusted, s.Applied, s.Scaled})
	if err != nil {
		return err
	}
	action, text := "apply-service", "generation "+s.Generation
	if s.Scaled != nil {
		action, text = "scale-service", fmt.Sprintf("min %d, max %d", s.Scaled.Min, s.Scaled.Max)
	}
	return x.m.Audit().PutService(ctx, s.Name, data, action, text)
}

// PutKnown keeps what was measured of a service.
func (x *Machine) PutKnown(ctx context.Context, service string, k *control.Known) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return x.m.Audit().PutServiceKnown(ctx, service, data)
}

// DeleteService forgets a service.
func (x *Machine) DeleteService(ctx context.Context, name string) error {
	return x.m.Audit().DeleteService(ctx, name)
}
