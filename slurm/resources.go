package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
)

// resources is a job's request in Slurm's terms, in total.
type resources struct {
	tasks, cpusPerTask, cpus  int // cpusPerTask 0: not given
	gpus, gpusPerTask         int // in total; per task 0: not given
	ram                       cluster.MiB
	share                     int64
	profile                   string
	types                     []string // as written
	anyTask, perNode, perTask bool     // which options were given, for the environment
}

// notHere is Slurm's own message, which people search for.
const notHere = "Requested node configuration is not available"

// gpuAsk is one request for devices.
type gpuAsk struct {
	count int
	typ   string
	share int64 // of mps:N
}

// parseGPUs reads [type:]number, the value of --gpus and similar options.
func parseGPUs(opt, s string) (gpuAsk, error) {
	typ, count, ok := strings.Cut(s, ":")
	if !ok {
		typ, count = "", s
	}
	if ok && count == "" || strings.Contains(s, ",") {
		return gpuAsk{}, fmt.Errorf("--%s=%s: write [type:]number; the GPUs of a job are of one model", opt, s)
	}
	n, good := number(count, cluster.MaxGPUsPerNode)
	if !good {
		if _, isNum := number(count, 1<<40); isNum {
			return gpuAsk{}, fmt.Errorf("--%s=%s: %s: no machine has more than %d GPUs", opt, s, notHere,
				cluster.MaxGPUsPerNode)
		}
		return gpuAsk{}, fmt.Errorf("--%s=%s: %q is not a number of GPUs", opt, s, count)
	}
	return gpuAsk{count: int(n), typ: typ}, nil
}

// parseGres reads gpu[:type][:number] and mps:percent. Slurm's lists may combine several; here a job holds one
// kind of device.
func parseGres(opt, s string) (gpuAsk, error) {
	if s == "none" || s == "" {
		return gpuAsk{}, nil
	}
	if strings.Contains(s, ",") {
		return gpuAsk{}, fmt.Errorf("--%s=%s: a job asks for one kind of device", opt, s)
	}
	body := s
	for _, p := range []string{"gres:", "gres/"} {
		body = strings.TrimPrefix(body, p)
	}
	f := strings.Split(strings.Replace(body, "=", ":", 1), ":")
	ask := gpuAsk{count: 1}
	if last := f[len(f)-1]; len(f) > 1 && last != "" && last[0] >= '0' && last[0] <= '9' && !endsInProfile(last) {
		n, ok := number(last, cluster.MaxGPUsPerNode)
		if !ok && f[0] == "gpu" {
			return gpuAsk{}, fmt.Errorf("--%s=%s: %q is not a number of GPUs up to %d", opt, s, last,
				cluster.MaxGPUsPerNode)
		}
		if f[0] == "mps" {
			return parseMPS(opt, s, last)
		}
		ask.count, f = int(n), f[:len(f)-1]
	}
	switch {
	case f[0] == "shard":
		return gpuAsk{}, fmt.Errorf("--%s=%s: only the site knows how much of a device a shard is; write mps:PERCENT or a #MUSTER --share=PERCENT line", opt, s)
	case f[0] != "gpu" || len(f) > 2 || len(f) == 2 && f[1] == "":
		return gpuAsk{}, fmt.Errorf(
			"--%s=%s: Invalid generic resource (gres) specification: write gpu[:type][:number] or mps:percent", opt, s)
	case len(f) == 2:
		ask.typ = f[1]
	}
	return ask, nil
}

func parseMPS(opt, s, percent string) (gpuAsk, error) {
	n, ok := number(percent, 100)
	if !ok || n == 0 {
		return gpuAsk{}, fmt.Errorf("--%s=%s: mps takes 1 to 100 percent of one device", opt, s)
	}
	return gpuAsk{count: 1, share: n * 10}, nil
}

// splitProfile finds the MIG profile at the end of a type, as sites name types: by itself or after an
// underscore. It returns where the profile begins, or -1. (It uses no regular expression, because compiling one
// would cost each start of sbatch more than reading its options does.)
func splitProfile(typ string) int {
	at := strings.LastIndexByte(typ, '_') + 1
	if !isProfile(typ[at:]) {
		return -1
	}
	return at
}

func endsInProfile(typ string) bool { return splitProfile(typ) >= 0 }

// isProfile reports whether a text is the name of a MIG profile, such as 1g.10gb or 1g.10gb+me.
func isProfile(s string) bool {
	slices, memory, ok := strings.Cut(s, "g.")
	memory, whole := strings.CutSuffix(strings.TrimSuffix(memory, "+me"), "gb")
	if !ok || !whole || len(slices) != 1 || slices[0] < '1' || slices[0] > '7' || memory == "" {
		return false
	}
	return strings.Trim(memory, "0123456789") == ""
}

// take merges a request for devices into r.
func (r *resources) take(opt string, a gpuAsk, total int) error {
	if r.gpus != 0 && total != r.gpus {
		return fmt.Errorf("--%s makes %d GPUs where another option makes %d: %s on one machine", opt, total, r.gpus,
			notHere)
	}
	r.gpus = total
	if a.share > 0 {
		r.share = a.share
	}
	if a.typ == "" || total == 0 {
		return nil
	}
	typ := a.typ
	if at := splitProfile(strings.ToLower(typ)); at >= 0 {
		r.profile = strings.ToLower(typ[at:])
		if typ = strings.TrimSuffix(typ[:at], "_"); typ == "" {
			return nil
		}
	}
	if len(r.types) > 0 && !slices.Contains(r.types, typ) {
		return fmt.Errorf("--%s asks for GPUs of type %s in addition to %s: the GPUs of a job are of one model", opt,
			typ, r.types[0])
	}
	r.types = []string{typ}
	return nil
}

// count reads an option that is a positive number.
func (s *settings) count(name string) (int, error) {
	if !s.has(name) {
		return 0, nil
	}
	n, ok := number(s.get(name), cluster.MaxTasks)
	if !ok || n == 0 {
		return 0, fmt.Errorf("invalid numeric value %q for --%s", s.get(name), name)
	}
	return int(n), nil
}

// resources computes a job's total request: amounts per task or per node are multiplied, because there is one
// node.
func (s *settings) resources() (resources, error) {
	var r resources
	if err := s.nodes(); err != nil {
		return r, err
	}
	if err := s.taskCounts(&r); err != nil {
		return r, err
	}
	if err := s.devices(&r); err != nil {
		return r, err
	}
	if err := s.processors(&r); err != nil {
		return r, err
	}
	return r, s.memory(&r)
}

func (s *settings) nodes() error {
	if !s.has("nodes") {
		return nil
	}
	text := s.get("nodes")
	lo, hi, isRange := strings.Cut(text, "-")
	a, ok := number(lo, 1<<31)
	b, ok2 := a, true
	if isRange {
		b, ok2 = number(hi, 1<<31)
	}
	if strings.Contains(text, ",") { // a list of acceptable numbers
		for _, p := range strings.Split(text, ",") {
			if p == "1" {
				return nil
			}
		}
	}
	switch {
	case !ok || !ok2 || a > b || b == 0:
		return fmt.Errorf("invalid number of nodes (-N %s)", text)
	case a > 1:
		return fmt.Errorf("--nodes=%s: %s: %s; %s", text, notHere, oneNode, s.onOneNode(a))
	}
	return nil
}

// onOneNode says how to request the same from one node.
func (s *settings) onOneNode(nodes int64) string {
	tasks := nodes
	if n, err := s.count("ntasks"); err == nil && n > 0 {
		tasks = int64(n)
	} else if each, err := s.count("ntasks-per-node"); err == nil && each > 0 {
		tasks = int64(each) * nodes
	}
	text := fmt.Sprintf("--nodes=1 --ntasks=%d", tasks)
	for _, name := range []string{"gpus-per-node", "gres"} {
		a, err := parseGPUs(name, strings.TrimPrefix(s.get(name), "gpu:"))
		if err != nil || a.count == 0 {
			continue
		}
		if a.typ != "" {
			a.typ += ":"
		}
		text += fmt.Sprintf(" --gpus=%s%d", a.typ, int64(a.count)*nodes)
		break
	}
	return "for as much on it write " + text
}

func (s *settings) taskCounts(r *resources) (err error) {
	if r.tasks, err = s.count("ntasks"); err != nil {
		return err
	}
	r.anyTask = r.tasks > 0
	each, err := s.count("ntasks-per-node")
	if err != nil {
		return err
	}
	if each > 0 && r.tasks > each {
		return fmt.Errorf("--ntasks=%d with --ntasks-per-node=%d needs more than one node: %s", r.tasks, each, notHere)
	}
	if each > 0 && r.tasks == 0 {
		r.tasks, r.perNode = each, true
	}
	return nil
}

// devices takes --gpus and similar options, and the tasks that follow from them.
func (s *settings) devices(r *resources) error {
	for _, name := range []string{"gpus", "gpus-per-node"} {
		if s.has(name) {
			a, err := parseGPUs(name, s.get(name))
			if err == nil {
				err = r.take(name, a, a.count)
			}
			if err != nil {
				return err
			}
		}
	}
	if s.has("gres") {
		a, err := parseGres("gres", s.get("gres"))
		if err == nil {
			err = r.take("gres", a, a.count)
		}
		if err != nil {
			return err
		}
	}
	if err := s.perTask(r); err != nil {
		return err
	}
	each, err := s.count("ntasks-per-gpu")
	if err != nil || each == 0 {
		return err
	}
	switch {
	case r.gpus == 0 && r.tasks == 0:
		return fmt.Errorf("--ntasks-per-gpu needs --ntasks or a number of GPUs")
	case r.gpus == 0:
		if r.tasks%each != 0 {
			return fmt.Errorf("--ntasks=%d is not a multiple of --ntasks-per-gpu=%d", r.tasks, each)
		}
		return r.take("ntasks-per-gpu", gpuAsk{}, r.tasks/each)
	case !r.anyTask:
		r.tasks, r.anyTask = r.gpus*each, true
	}
	return nil
}

func (s *settings) perTask(r *resources) error {
	var a gpuAsk
	var err error
	name := "gpus-per-task"
	switch {
	case s.has(name):
		a, err = parseGPUs(name, s.get(name))
	case s.has("tres-per-task"):
		name = "tres-per-task"
		a, err = s.tresPerTask()
	}
	if err != nil || a.count == 0 {
		return err
	}
	if r.tasks == 0 {
		if r.gpus == 0 {
			return fmt.Errorf("--%s used without either --gpus or -n/--ntasks is not allowed", name)
		}
		if r.gpus%a.count != 0 {
			return fmt.Errorf("--gpus=%d is not a multiple of --%s=%d", r.gpus, name, a.count)
		}
		r.tasks, r.anyTask = r.gpus/a.count, true
	}
	if a.count*r.tasks > cluster.MaxGPUsPerNode {
		return fmt.Errorf("--%s: %d GPUs: %s", name, a.count*r.tasks, notHere)
	}
	r.gpusPerTask, r.perTask = a.count, true
	return r.take(name, a, a.count*r.tasks)
}

// tresPerTask reads cpu:N and gres/gpu[:type]:N.
func (s *settings) tresPerTask() (gpuAsk, error) {
	var ask gpuAsk
	for _, t := range strings.Split(s.get("tres-per-task"), ",") {
		kind := strings.FieldsFunc(t, func(r rune) bool { return r == ':' || r == '=' })
		switch {
		case len(kind) == 2 && kind[0] == "cpu":
			if s.has("cpus-per-task") {
				return ask, fmt.Errorf("--tres-per-task=cpu and --cpus-per-task are mutually exclusive")
			}
			s.of["cpus-per-task"] = setting{kind[1], s.of["tres-per-task"].layer}
		case strings.HasPrefix(t, "gres/gpu") || strings.HasPrefix(t, "gres:gpu"):
			var err error
			if ask, err = parseGres("tres-per-task", t); err != nil {
				return ask, err
			}
		default:
			return ask, fmt.Errorf("--tres-per-task=%s: only cpu:N and gres/gpu[:type]:N can be asked per task", t)
		}
	}
	return ask, nil
}

func (s *settings) processors(r *resources) (err error) {
	tasks := max(r.tasks, 1)
	if r.cpusPerTask, err = s.count("cpus-per-task"); err != nil {
		return err
	}
	r.cpus = tasks * max(r.cpusPerTask, 1)
	each, err := s.count("cpus-per-gpu")
	if err != nil {
		return err
	}
	if each > 0 {
		if r.gpus == 0 {
			return fmt.Errorf("--cpus-per-gpu used without any GPU is not allowed")
		}
		r.cpus = max(r.cpus, each*r.gpus)
	}
	if s.has("overcommit") {
		r.cpus = 1
	}
	least, err := s.count("mincpus")
	r.cpus = max(r.cpus, least)
	if err == nil && int64(r.cpus) > cluster.MaxTasks {
		err = fmt.Errorf("%d CPUs: %s", r.cpus, notHere)
	}
	return err
}

// memory sets the total host memory. --mem=0, all of the node, is -1 here.
func (s *settings) memory(r *resources) error {
	for _, m := range []struct {
		name string
		n    int
	}{{"mem", 1}, {"mem-per-cpu", r.cpus}, {"mem-per-gpu", r.gpus}} {
		if !s.has(m.name) {
			continue
		}
		v, err := ParseMemory(s.get(m.name))
		if err != nil {
			return fmt.Errorf("invalid --%s specification: %w", m.name, err)
		}
		if m.n == 0 {
			return fmt.Errorf("--%s used without any GPU is not allowed", m.name)
		}
		if v > cluster.MaxMiB/int64(m.n) {
			return fmt.Errorf("--%s=%s: %s", m.name, s.get(m.name), notHere)
		}
		if r.ram = v * int64(m.n); v == 0 {
			r.ram = -1
		}
	}
	return nil
}

// modelsLike are the models of the machine whose names contain typ; case and separators do not matter.
func modelsLike(typ string, nodes []api.Node) []string {
	plain := func(s string) string {
		return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(s))
	}
	var out []string
	for _, n := range nodes {
		for _, g := range n.GPUs {
			if strings.Contains(plain(g.Model), plain(typ)) && !slices.Contains(out, g.Model) {
				out = append(out, g.Model)
			}
		}
	}
	return out
}

func models(nodes []api.Node) []string { return modelsLike("", nodes) }

// resolveTypes translates types as people write them into models of this machine.
func resolveTypes(types []string, nodes []api.Node) ([]string, error) {
	var out []string
	for _, t := range types {
		hit := modelsLike(t, nodes)
		if len(hit) == 0 {
			return nil, says("GPU type %s: %s (there are: %s)", strconv.Quote(t), notHere,
				strings.Join(models(nodes), ", "))
		}
		for _, m := range hit {
			if !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out, nil
}
