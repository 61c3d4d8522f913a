package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// machine is the outside information that a submission depends on.
type machine struct {
	now   time.Time
	nodes func() ([]api.Node, error)
	parts func() ([]api.Partition, error)
	jobs  func() ([]api.Job, error)  // to find elements of arrays
	job   func(int) (api.Job, error) // to find the others of a dependency
	env   []string
	dir   string

	queues func() ([]api.Queue, error) // to find out whether accounts mean anything
}

// tiers are the values of --qos: which jobs a job may preempt, and which may preempt it.
var tiers = []string{"critical", "standard", "best-effort"}

var kinds = []string{"training", "batch", "service", "interactive", "trial"}

// submission translates the settings. The caller adds what runs (script or command) and the files.
func (s *settings) submission(m machine) (api.Submission, resources, error) {
	sub := api.Submission{Once: true, Tasks: 1, Name: s.get("job-name"), Queue: s.get("account"),
		Comment:     s.get("comment"),
		Reservation: s.get("reservation"), Hold: s.has("hold"), NoRequeue: s.get("requeue") == "no", Dir: m.dir,
		Input: s.get("input"), Output: s.get("output"), Error: s.get("error")}
	r, err := s.resources()
	if err != nil {
		return sub, r, err
	}
	for _, step := range []func(*api.Submission, *resources, machine) error{
		s.own, s.amounts, s.gpuTypes, s.account, s.where, s.times, s.order, s.jobArray, s.after, s.signal,
		s.environment} {
		if err := step(&sub, &r, m); err != nil {
			return sub, r, err
		}
	}
	return sub, r, nil
}

// own takes Muster's own options, --qos and small options.
func (s *settings) own(sub *api.Submission, r *resources, _ machine) error {
	sub.Tier, sub.Kind = s.get("tier"), s.get("kind")
	if s.has("qos") && !s.has("tier") {
		sub.Tier = s.get("qos")
	}
	if sub.Tier != "" && !slices.Contains(tiers, sub.Tier) {
		return fmt.Errorf("--qos and --tier: %w", cluster.Unknown("tier", sub.Tier, tiers))
	}
	if sub.Kind != "" && !slices.Contains(kinds, sub.Kind) {
		return fmt.Errorf("--kind: %w", cluster.Unknown("kind", sub.Kind, kinds))
	}
	if s.has("share") {
		n, ok := number(strings.TrimSuffix(s.get("share"), "%"), 100)
		if !ok || n == 0 {
			return fmt.Errorf("--share=%s: write 1 to 100 percent of each device", s.get("share"))
		}
		r.share = n * 10
		r.gpus = max(r.gpus, 1)
	}
	if s.has("mig") {
		if r.profile = s.get("mig"); r.profile != "" && !isProfile(r.profile) {
			return fmt.Errorf("--mig=%s is not a MIG profile such as 1g.10gb", r.profile)
		}
		r.gpus = max(r.gpus, 1)
	}
	if r.share > 0 && r.profile != "" {
		return fmt.Errorf("a share of a device and a MIG profile exclude each other")
	}
	if s.has("gpu-memory") {
		v, err := ParseMemory(s.get("gpu-memory"))
		if err != nil {
			return fmt.Errorf("--gpu-memory: %w", err)
		}
		sub.Memory = v
	}
	sub.Isolation = s.get("isolation")
	if _, err := cluster.ParseIsolation(sub.Isolation); err != nil {
		return fmt.Errorf("--isolation: %w", err)
	}
	if s.has("min-speed") {
		v, err := strconv.ParseFloat(s.get("min-speed"), 64)
		if err != nil || !(v >= 0 && v <= 1) {
			return fmt.Errorf("--min-speed: %q is not a part of its speed, between 0 and 1", s.get("min-speed"))
		}
		sub.MinSpeed = v
	}
	mode := s.get("open-mode")
	if mode != "" && mode != "append" && mode != "truncate" && mode != "a" && mode != "t" {
		return fmt.Errorf("invalid --open-mode specification %q: append or truncate", mode)
	}
	sub.Truncate = !strings.HasPrefix(mode, "a")
	return s.killOnInvalid()
}

// killOnInvalid: a job whose dependency can never hold ends at once here, as with --kill-on-invalid-dep=yes.
func (s *settings) killOnInvalid() error {
	switch s.get("kill-on-invalid-dep") {
	case "", "yes":
	case "no":
		s.warnings = append(s.warnings,
			"--kill-on-invalid-dep=no is ignored: a job whose dependency can never hold is cancelled")
	default:
		return fmt.Errorf("invalid --kill-on-invalid-dep specification %q: yes or no", s.get("kill-on-invalid-dep"))
	}
	return nil
}

// amounts fills in devices, cores and memory; --exclusive takes the machine.
func (s *settings) amounts(sub *api.Submission, r *resources, m machine) error {
	var most machineSize
	if s.has("exclusive") || r.ram < 0 {
		nodes, err := m.nodes()
		if err != nil {
			return err
		}
		most = largest(nodes)
	}
	if s.has("exclusive") {
		if text := s.get("exclusive"); text != "" && text != "1" && text != "yes" {
			return fmt.Errorf("--exclusive=%s is not supported: a job has the machine to itself or shares it with all",
				text)
		}
		if !most.known {
			return fmt.Errorf("--exclusive: the server names no machine")
		}
		r.gpus, r.cpus = max(r.gpus, most.gpus), max(r.cpus, int(most.cpu/1000))
	}
	if r.ram < 0 {
		if r.ram = most.ram; most.ram == 0 {
			return fmt.Errorf("--mem=0, all of the node's memory: the server does not say how much that is")
		}
	}
	sub.GPUs, sub.Share, sub.Profile, sub.CPU, sub.RAM = r.gpus, r.share, r.profile, int64(r.cpus)*1000, r.ram
	return nil
}

// machineSize is the largest amount of each resource that a machine has.
type machineSize struct {
	known    bool
	gpus     int
	cpu, ram int64
}

func largest(nodes []api.Node) machineSize {
	most := machineSize{known: len(nodes) > 0}
	for _, n := range nodes {
		most.gpus, most.cpu, most.ram = max(most.gpus, len(n.GPUs)), max(most.cpu, n.CPU), max(most.ram, n.RAM)
	}
	return most
}

// checked is submission, with requests beyond the machine refused at once.
func (s *settings) checked(m machine) (api.Submission, resources, error) {
	sub, r, err := s.submission(m)
	if err == nil {
		err = m.refusal(&sub, &r)
	}
	return sub, r, err
}

// refusal says in Slurm's words which request exceeds the machine. The server refuses such a job anyway, so bulk
// submissions need not request the machine first.
func (m *machine) refusal(sub *api.Submission, r *resources) error {
	nodes, err := m.nodes()
	if err != nil {
		return err
	}
	most := largest(nodes)
	for _, lack := range []struct {
		what       string
		asked, has int64
	}{{"GPUs", int64(r.gpus), int64(most.gpus)}, {"CPUs", int64(r.cpus), most.cpu / 1000},
		{"MiB of memory", r.ram, most.ram}} {
		whole := lack.what != "GPUs" || r.profile == ""
		if most.known && lack.asked > lack.has && whole && (lack.has > 0 || lack.what == "GPUs") {
			return fmt.Errorf("%s: %d %s, and the machine has %d", notHere, lack.asked, lack.what, lack.has)
		}
	}
	if len(sub.Partitions) == 0 {
		return nil
	}
	parts, err := m.parts()
	if err != nil {
		return err
	}
	for _, p := range sub.Partitions {
		if len(parts) > 0 && !slices.ContainsFunc(parts, func(k api.Partition) bool { return k.Name == p }) {
			return says("Invalid partition name specified: %s", p)
		}
	}
	return nil
}

// gpuTypes takes types from the requested devices, --constraint and --prefer.
func (s *settings) gpuTypes(sub *api.Submission, r *resources, m machine) error {
	if len(r.types) == 0 && s.get("constraint") == "" && s.get("prefer") == "" {
		return nil
	}
	nodes, err := m.nodes()
	if err != nil {
		return err
	}
	types, err := resolveTypes(r.types, nodes)
	if err != nil {
		return err
	}
	if c := s.get("constraint"); c != "" {
		want, err := features("constraint", c)
		if err != nil {
			return err
		}
		allowed, err := resolveTypes(want, nodes)
		if err != nil {
			return fmt.Errorf("--constraint=%s: Invalid feature specification: %w", c, err)
		}
		if types == nil {
			types = allowed
		} else if types = slices.DeleteFunc(types, func(t string) bool {
			return !slices.Contains(allowed, t)
		}); len(types) == 0 {
			return fmt.Errorf("--constraint=%s and --gpus=%s:...: %s", c, r.types[0], notHere)
		}
	}
	if p := s.get("prefer"); p != "" {
		want, err := features("prefer", p)
		if err != nil {
			return err
		}
		if types == nil {
			types = models(nodes)
		}
		liked := func(t string) bool {
			return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(modelsLike(w, nodes), t) })
		}
		var first, then []string
		for _, t := range types {
			if liked(t) {
				first = append(first, t)
			} else {
				then = append(then, t)
			}
		}
		types = append(first, then...)
	}
	sub.GPUTypes = types
	return nil
}

// features reads alternatives of GPU models, a|b.
func features(opt, s string) ([]string, error) {
	if strings.ContainsAny(s, "&*,[]()") {
		return nil, fmt.Errorf(
			"--%s=%s: only GPU models joined by | are features here; all of a job's GPUs are of one model", opt, s)
	}
	out := strings.Split(s, "|")
	if slices.Contains(out, "") {
		return nil, fmt.Errorf("--%s=%s: a feature is empty", opt, s)
	}
	return out, nil
}

// account takes the queue. Where none is configured, scripts that name an account run all the same, with a
// warning.
func (s *settings) account(sub *api.Submission, _ *resources, m machine) error {
	if sub.Queue == "" || sub.Queue == noQueue {
		return nil
	}
	queues, err := m.queues()
	if err != nil {
		return err
	}
	if unconfigured(queues) {
		s.warnings = append(s.warnings,
			fmt.Sprintf("--account=%s counts for nothing: no queue is configured here, and all jobs are in the queue %s", sub.Queue, noQueue))
		sub.Queue = ""
	}
	return nil
}

// noQueue is the queue of all jobs where none is configured.
const noQueue = "default"

func unconfigured(queues []api.Queue) bool {
	return len(queues) == 0 || len(queues) == 1 && queues[0].Name == noQueue
}

// where takes partitions, node lists and the directory.
func (s *settings) where(sub *api.Submission, _ *resources, m machine) error {
	for _, p := range strings.Split(s.get("partition"), ",") {
		if p == "" {
			continue
		}
		sub.Partitions = append(sub.Partitions, p)
	}
	for _, name := range []string{"nodelist", "exclude"} {
		hosts, err := ExpandHosts(s.get(name))
		if err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
		if len(hosts) == 0 {
			continue
		}
		nodes, err := m.nodes()
		if err != nil {
			return err
		}
		for _, h := range hosts {
			known := slices.ContainsFunc(nodes, func(n api.Node) bool { return n.Name == h })
			if !known {
				return fmt.Errorf("--%s=%s: Invalid node name specified", name, h)
			}
			if name == "exclude" && len(nodes) == 1 {
				return fmt.Errorf("--exclude=%s: %s: %s", h, notHere, oneNode)
			}
		}
	}
	if d := s.get("chdir"); d != "" {
		if !filepath.IsAbs(d) {
			d = filepath.Join(m.dir, d)
		}
		sub.Dir = d
	}
	return nil
}

func (s *settings) times(sub *api.Submission, _ *resources, m machine) error {
	if s.has("time") {
		d, err := ParseTime(s.get("time"))
		if err != nil {
			return fmt.Errorf("invalid --time specification: %w", err)
		}
		if d == 0 {
			d = cluster.MaxDuration // 0 would be the partition's default
		}
		sub.Limit = api.Duration(d)
	}
	for _, w := range []struct {
		name string
		into **time.Time
	}{{"begin", &sub.Begin}, {"deadline", &sub.Deadline}} {
		if !s.has(w.name) {
			continue
		}
		t, err := ParseWhen(s.get(w.name), m.now)
		if err != nil {
			return fmt.Errorf("invalid --%s specification: %w", w.name, err)
		}
		*w.into = &t
	}
	if sub.Begin != nil && !sub.Begin.After(m.now) {
		sub.Begin = nil
	}
	if sub.Deadline != nil {
		from := m.now
		if sub.Begin != nil {
			from = *sub.Begin
		}
		if from.Add(limit(sub)).After(*sub.Deadline) || !sub.Deadline.After(m.now) {
			return fmt.Errorf("--deadline=%s: the job cannot be done by %s", s.get("deadline"), stamp(sub.Deadline, ""))
		}
	}
	return nil
}

// order takes --priority and --nice. Muster has a single number, higher first.
func (s *settings) order(sub *api.Submission, _ *resources, _ machine) error {
	const most = 2147483645
	if s.has("priority") {
		n, ok := number(s.get("priority"), 1<<32-1)
		if !ok && !strings.EqualFold(s.get("priority"), "TOP") {
			return fmt.Errorf("invalid --priority specification %q", s.get("priority"))
		}
		if sub.Priority = n; !ok {
			return fmt.Errorf("--priority=TOP is not supported: write a number, or use scontrol top")
		}
	}
	if s.has("nice") {
		text := s.get("nice")
		if text == "" {
			text = "100"
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > most || n < -most {
			return fmt.Errorf("invalid --nice specification %q: a number within ±%d", text, most)
		}
		sub.Priority -= n
	}
	return nil
}

func (s *settings) jobArray(sub *api.Submission, _ *resources, _ machine) error {
	if text := s.get("array"); text != "" {
		a, err := ask.ParseArray(text)
		if err != nil {
			return says("Invalid job array specification: %w", err)
		}
		sub.Array = a.String()
	}
	return nil
}

func (s *settings) after(sub *api.Submission, _ *resources, m machine) error {
	if s.get("dependency") == "" {
		return nil
	}
	var err error
	sub.After, sub.AnyOf, err = Dependencies(s.get("dependency"), m.jobs, m.job)
	return err
}

// Dependencies translates --dependency, and returns whether one of the conditions is enough; jobs finds elements
// of arrays. An unknown job is an error; Slurm would take it for one that is over.
func Dependencies(text string, jobs func() ([]api.Job, error), job func(int) (api.Job, error)) (out []api.After,
	anyOf bool, err error) {
	d, err := ParseDependency(text)
	if err != nil {
		return nil, false, fmt.Errorf("job dependency problem: %w", err)
	}
	for _, t := range d.Terms {
		switch t.Type {
		case "afterburstbuffer", "expand":
			return nil, false, fmt.Errorf("--dependency=%s is not supported: %s does not exist here", text, t.Type)
		}
		a := api.After{Type: t.Type, Job: t.Job, Delay: api.Duration(t.Delay)}
		if t.Index >= 0 {
			all, err := jobs()
			if err != nil {
				return nil, false, err
			}
			i := slices.IndexFunc(all, func(j api.Job) bool { return j.Array == t.Job && j.Index == t.Index })
			if i < 0 {
				return nil, false, fmt.Errorf("--dependency=%s: there is no job %d_%d: %w", text, t.Job, t.Index,
					ErrNoJob)
			}
			a.Job = all[i].ID
		} else if a.Job != 0 {
			if _, err := job(a.Job); err != nil {
				return nil, false, fmt.Errorf("job dependency problem: job %d: %w", a.Job, err)
			}
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, d.Any && len(out) > 1, nil
}

func (s *settings) signal(sub *api.Submission, _ *resources, _ machine) error {
	if !s.has("signal") {
		return nil
	}
	v, err := ParseSignal(s.get("signal"))
	if err != nil {
		return fmt.Errorf("invalid --signal specification: %w", err)
	}
	if v.Reservation {
		s.warnings = append(s.warnings, "--signal=R: is ignored: no job reaches into a reservation")
	}
	sub.Signal, sub.SignalBefore, sub.SignalShell = v.Name, api.Duration(v.Before), v.Shell
	return nil
}

// environment sends the variables of --export, and those that sbatch itself sets. Variables of a job from which
// sbatch is called do not belong to the new one.
func (s *settings) environment(sub *api.Submission, r *resources, m machine) error {
	env := slices.DeleteFunc(slices.Clone(m.env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "SLURM_") && name != "SLURM_CONF" || name == "CUDA_VISIBLE_DEVICES"
	})
	if file := s.get("export-file"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--export-file: %w", err)
		}
		env = slices.DeleteFunc(strings.Split(string(text), "\x00"), func(e string) bool {
			return strings.Index(e, "=") <= 0
		})
	}
	out, err := export(s.get("export"), env)
	if err != nil {
		return err
	}
	add := func(name, value string) { out = append(out, name+"="+value) }
	if e := s.get("export"); e != "" && !strings.EqualFold(e, "ALL") {
		add("SLURM_EXPORT_ENV", e)
	}
	add("SLURM_SUBMIT_DIR", m.dir)
	if h, err := os.Hostname(); err == nil {
		add("SLURM_SUBMIT_HOST", strings.SplitN(h, ".", 2)[0])
	}
	if r.anyTask || r.perNode {
		add("SLURM_NTASKS", strconv.Itoa(r.tasks))
		add("SLURM_NPROCS", strconv.Itoa(r.tasks))
	}
	if r.cpusPerTask > 0 {
		add("SLURM_CPUS_PER_TASK", strconv.Itoa(r.cpusPerTask))
	}
	if r.gpusPerTask > 0 {
		add("SLURM_GPUS_PER_TASK", strconv.Itoa(r.gpusPerTask))
	}
	for _, o := range []struct{ opt, name string }{{"cpus-per-gpu", "SLURM_CPUS_PER_GPU"}, {"gpus", "SLURM_GPUS"},
		{"gpus-per-node", "SLURM_GPUS_PER_NODE"},
		{"ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"}, {"ntasks-per-node", "SLURM_NTASKS_PER_NODE"}} {
		if s.has(o.opt) {
			add(o.name, s.get(o.opt))
		}
	}
	for _, o := range []struct{ opt, name string }{{"mem", "SLURM_MEM_PER_NODE"}, {"mem-per-cpu", "SLURM_MEM_PER_CPU"},
		{"mem-per-gpu", "SLURM_MEM_PER_GPU"}} {
		if v, err := ParseMemory(s.get(o.opt)); err == nil {
			add(o.name, strconv.FormatInt(v, 10))
		}
	}
	sub.Env = out
	return nil
}

// export selects variables by the value of --export: ALL, NONE, NIL, names and NAME=VALUE. SLURM_* and SBATCH_*
// are not passed on with names, MUSTER_* are.
func export(text string, env []string) ([]string, error) {
	switch strings.ToUpper(text) {
	case "", "ALL":
		return slices.Clone(env), nil
	case "NONE", "NIL":
		return nil, nil
	}
	var out []string
	for _, e := range splitExport(text) {
		name, _, set := strings.Cut(e, "=")
		switch {
		case strings.EqualFold(e, "ALL"):
			out = append(slices.Clone(env), out...)
		case name == "":
			return nil, fmt.Errorf("--export=%s: a name is empty", text)
		case set:
			out = append(out, e)
		default:
			if v, ok := lookupEnv(env, name); ok {
				out = append(out, name+"="+v)
			}
		}
	}
	return out, nil
}

// splitExport splits at commas outside quotes, which it drops.
func splitExport(s string) []string {
	var out []string
	var b strings.Builder
	var quote rune
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ',':
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteRune(c)
		}
	}
	return append(out, b.String())
}
