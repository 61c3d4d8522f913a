package slurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

var scontrolOptions = []option{
	{name: "all", short: 'a'},
	{name: "details", short: 'd'},
	{name: "help", short: 'h'},
	{name: "json"},
	{name: "oneliner", short: 'o'},
	{name: "quiet", short: 'Q'},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
}

var scontrolVerbs = []string{"hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume", "show",
	"update", "wait_job", "write", "ping", "version", "help", "top"}

const scontrolHelp = `Usage: scontrol [-d] [-o] [--json] VERB ...

  show job [JOB] | node [NODE] | partition [NAME]
  show hostnames [LIST] | hostlist NODE,...
  update jobid=JOB FIELD=VALUE ...   TimeLimit Name Account Partition QOS Priority Nice StartTime Deadline
                                     Dependency ArrayTaskThrottle Requeue Comment ReservationName
  update nodename=NODE state=drain|resume|down [reason=TEXT]
  hold | uhold | release | requeue | requeuehold | suspend | resume | wait_job JOB ...
  write batch_script JOB [FILE|-]
  ping, version, help
`

func (c *command) scontrol() (int, error) {
	s, rest, err := c.options(scontrolOptions, true)
	if err != nil {
		return 1, err
	}
	switch {
	case s.has("version"):
		rest = []string{"version"}
	case s.has("help"), len(rest) == 0:
		rest = []string{"help"}
	}
	verb, args := strings.ToLower(rest[0]), rest[1:]
	switch verb {
	case "help":
		c.printf("%s", scontrolHelp)
		return 0, nil
	case "version":
		c.printf("%s\n", version)
		return 0, nil
	case "ping":
		if _, err = c.svc.Nodes(); err != nil {
			return 1, err
		}
		c.printf("Slurmctld(primary) at %s is UP\n", hostName())
		return 0, nil
	case "show", "list":
		return c.show(&s, args)
	case "update":
		return c.update(args)
	case "write":
		return c.writeScript(args)
	}
	return c.each(verb, args)
}

// each applies a verb to the named jobs.
func (c *command) each(verb string, args []string) (int, error) {
	wait := func(id int) error { _, err := c.svc.Wait(id); return err }
	again := func(id int) error {
		if err := c.svc.Requeue(id); err != nil {
			return err
		}
		return c.svc.Hold(id)
	}
	act, ok := map[string]func(int) error{
		"hold": c.svc.Hold, "uhold": c.svc.Hold, "release": c.svc.Release, "requeue": c.svc.Requeue,
		"requeuehold": again,
		"suspend":     c.svc.Suspend, "resume": c.svc.Resume, "wait_job": wait, "top": c.top}[verb]
	if !ok {
		return 1, fmt.Errorf("invalid keyword: %w", cluster.Unknown("verb", verb, scontrolVerbs))
	}
	if len(args) == 0 {
		return 1, fmt.Errorf("too few arguments for keyword:%s", verb)
	}
	code := 0
	for _, a := range args {
		for _, p := range []string{"jobid=", "job="} {
			if strings.HasPrefix(strings.ToLower(a), p) {
				a = a[len(p):]
			}
		}
		jobs, err := c.named(a)
		if err != nil {
			code = 1
			c.errorf("%v for job %s\n", err, a)
			continue
		}
		for _, j := range jobs {
			if err = act(j.ID); err != nil {
				code = 1
				c.errorf("%v for job %s\n", err, (&row{Job: &j}).idText())
			}
		}
	}
	return code, nil
}

// top moves a job before the caller's other jobs.
func (c *command) top(id int) error {
	jobs, err := c.svc.Jobs()
	if err != nil {
		return err
	}
	highest := int64(0)
	for _, j := range jobs {
		if j.User == c.svc.User() && j.State == api.StatePending && j.ID != id {
			highest = max(highest, j.Submission.Priority+1)
		}
	}
	return c.svc.Update(id, &api.Update{Priority: &highest})
}

// named are the jobs of a list of numbers or names.
func (c *command) named(s string) ([]api.Job, error) {
	refs, err := parseRefs(s)
	if err != nil {
		return nil, err
	}
	all, err := c.recent()
	if err != nil {
		return nil, err
	}
	var out []api.Job
	for _, r := range refs {
		n := len(out)
		for i := range all {
			if r.is(&all[i]) {
				out = append(out, all[i])
			}
		}
		if len(out) > n {
			continue
		}
		j, err := c.svc.Job(r.id)
		if err != nil || r.indices != nil {
			return nil, says("Invalid job id specified")
		}
		out = append(out, j)
	}
	return out, nil
}

func (c *command) show(s *settings, args []string) (int, error) {
	if len(args) == 0 {
		return 1, fmt.Errorf("too few arguments for keyword:show")
	}
	what, names := strings.ToLower(args[0]), strings.Join(args[1:], ",")
	if k, v, ok := strings.Cut(what, "="); ok {
		what, names = k, v
	}
	is := func(full string, least int) bool { return len(what) >= least && strings.HasPrefix(full, what) }
	switch {
	case is("jobs", 1), what == "jobid":
		return c.showJobs(s, names)
	case is("nodes", 1):
		return c.showNodes(s, names)
	case is("partitions", 1):
		return c.showPartitions(s, names)
	case is("hostnames", 5):
		if names == "" {
			names, _ = lookupEnv(c.env, "SLURM_JOB_NODELIST")
		}
		hosts, err := ExpandHosts(names)
		for _, h := range hosts {
			c.printf("%s\n", h)
		}
		return 0, err
	case is("hostlist", 5), what == "hostlistsorted":
		hosts, err := ExpandHosts(names)
		if err == nil {
			c.printf("%s\n", CompressHosts(hosts))
		}
		return 0, err
	}
	return 1, fmt.Errorf("invalid entity: %w",
		cluster.Unknown("thing to show", what, []string{"job", "node", "partition", "hostnames", "hostlist"}))
}

func (c *command) showJobs(s *settings, names string) (int, error) {
	jobs, err := c.svc.Jobs()
	if names != "" {
		jobs, err = c.named(names)
	}
	if err != nil && names != "" {
		return 1, fmt.Errorf("slurm_load_jobs error: %w", err)
	}
	v, err := c.view(jobs, err)
	if err != nil {
		return 1, err
	}
	rows := v.rows(&filter{}, false)
	if s.has("json") {
		return 0, c.json("jobs", jobsJSON(v, rows))
	}
	if len(rows) == 0 {
		c.printf("No jobs in the system\n")
	}
	for i := range rows {
		c.block(s, v.jobBlock(&rows[i], s.has("details")))
	}
	return 0, nil
}

// block prints key=value lines, or one line with --oneliner.
func (c *command) block(s *settings, lines []string) {
	if s.has("oneliner") {
		c.printf("%s\n", strings.Join(lines, " "))
		return
	}
	c.printf("%s\n\n", strings.Join(lines, "\n   "))
}

// jobBlock is the output of scontrol show job: Slurm's lines in Slurm's order, without those that are always
// empty here.
func (v *view) jobBlock(r *row, details bool) []string {
	j, s := r.Job, &r.Submission
	id := fmt.Sprintf("JobId=%d ", j.ID)
	if j.Array != 0 {
		id += fmt.Sprintf("ArrayJobId=%d ArrayTaskId=%s ", j.Array, r.indexText())
		if n := arrayCap(j); n > 0 {
			id += fmt.Sprintf("ArrayTaskThrottle=%d ", n)
		}
	}
	requeue := 1
	if s.NoRequeue {
		requeue = 0
	}
	batch := 1
	if s.Attached {
		batch = 0
	}
	tasks, perTask := taskLayout(j)
	group, gid := groupOf(j.User)
	lines := []string{
		id + "JobName=" + s.Name,
		fmt.Sprintf("UserId=%s(%s) GroupId=%s(%s) MCS_label=N/A", j.User, idOf(j.User), group, gid),
		fmt.Sprintf("Priority=%d Nice=%d Account=%s QOS=%s", priority(j), nice(j), orNull(s.Queue), orNull(s.Tier)),
		fmt.Sprintf("JobState=%s Reason=%s Dependency=%s", stateOf(j).name, reason(j), dependencyText(j)),
		fmt.Sprintf("Requeue=%d Restarts=%d BatchFlag=%d Reboot=0 ExitCode=%s", requeue, j.Restarts, batch,
			exitText(j)),
		fmt.Sprintf("RunTime=%s TimeLimit=%s TimeMin=N/A", longClock(ranFor(j, v.now)), longLimit(s)),
		fmt.Sprintf("SubmitTime=%s EligibleTime=%s", stamp(&j.Submitted, "Unknown"), stamp(j.Eligible, "Unknown")),
		fmt.Sprintf("StartTime=%s EndTime=%s Deadline=%s", startOf(j), stamp(endOf(j), "Unknown"),
			stamp(s.Deadline, "N/A")),
		"Partition=" + v.partitionText(j),
		"ReqNodeList=(null) ExcNodeList=(null)",
		"NodeList=" + nodeOf(*r),
		fmt.Sprintf("NumNodes=1 NumCPUs=%d NumTasks=%d CPUs/Task=%d", cpus(j), tasks, perTask),
		"TRES=" + tresText(j),
		"MinMemoryNode=" + memoryText(j),
		"Features=" + orNull(strings.Join(s.GPUTypes, "|")),
		"Command=" + commandText(j),
		"WorkDir=" + s.Dir,
	}
	if nodeOf(*r) != "" {
		lines = slices.Insert(lines, 11, "BatchHost="+j.Node)
	}
	if s.Comment != "" {
		lines = append(lines, "Comment="+s.Comment)
	}
	lines = append(lines, "StdErr="+cmpOr(j.StdErr, j.StdOut), "StdIn="+cmpOr(s.Input, "/dev/null"), "StdOut="+j.StdOut)
	if gpus(j) > 0 {
		lines = append(lines, "TresPerJob="+gresText(j))
	}
	if details && len(j.Devices) > 0 {
		lines = append(lines,
			fmt.Sprintf("JOB_GRES=gpu:%d Nodes=%s GRES=gpu:%d(IDX:%s)", gpus(j), j.Node, gpus(j), deviceText(j)))
	}
	if j.Reason != "" {
		lines = append(lines, "SystemComment="+j.Reason)
	}
	return lines
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func memoryText(j *api.Job) string {
	if memory(j) == 0 {
		return "0"
	}
	return sizeText(memory(j))
}

func startOf(j *api.Job) string {
	if j.State == api.StatePending {
		return stamp(expectedStart(j), "Unknown")
	}
	return stamp(j.Started, "Unknown")
}

func longLimit(s *api.Submission) string {
	if limit(s) == 0 {
		return "UNLIMITED"
	}
	return longClock(limit(s))
}

func deviceText(j *api.Job) string {
	v := make([]int, len(j.Devices))
	for i, d := range j.Devices {
		v[i] = d.Index
	}
	slices.Sort(v)
	return ask.Ranges(v)
}

// taskLayout is how many tasks srun starts by default, and their cores. sbatch passes it in the environment;
// other jobs state it themselves.
func taskLayout(j *api.Job) (tasks, perTask int) {
	if !j.Submission.Once {
		return max(j.Submission.Tasks, 1), max(int(j.Submission.CPU/1000), 1)
	}
	get := func(name string) int {
		s, _ := lookupEnv(j.Submission.Env, name)
		n, _ := number(s, cluster.MaxTasks) // missing: 0
		return int(max(n, 1))
	}
	return get("SLURM_NTASKS"), get("SLURM_CPUS_PER_TASK")
}

func (c *command) showNodes(s *settings, names string) (int, error) {
	v, err := c.view(c.svc.Jobs())
	if err != nil {
		return 1, err
	}
	want, err := ExpandHosts(names)
	if err != nil {
		return 1, err
	}
	for _, w := range want {
		if !slices.ContainsFunc(v.nodes, func(n api.Node) bool { return n.Name == w }) {
			return 1, says("Node %s not found", w)
		}
	}
	if s.has("json") {
		return 0, c.json("nodes", nodesJSON(v))
	}
	for _, n := range v.nodes {
		if len(want) > 0 && !slices.Contains(want, n.Name) {
			continue
		}
		d := v.describe(n)
		var in []string
		for _, p := range v.parts {
			if slices.Contains(p.Nodes, n.Name) {
				in = append(in, p.Name)
			}
		}
		lines := []string{
			fmt.Sprintf("NodeName=%s CoresPerSocket=%d", n.Name, n.CPU/1000),
			fmt.Sprintf("CPUAlloc=%d CPUEfctv=%d CPUTot=%d", d.cpus, n.CPU/1000, n.CPU/1000),
			"AvailableFeatures=(null)", "ActiveFeatures=(null)",
			"Gres=" + nodeGres(d),
			fmt.Sprintf("NodeAddr=%s NodeHostName=%s", n.Name, n.Name),
			fmt.Sprintf("RealMemory=%d AllocMem=%d Sockets=1 Boards=1", n.RAM, d.ram),
			fmt.Sprintf("State=%s ThreadsPerCore=1 Weight=1", strings.ToUpper(d.state)),
			"Partitions=" + strings.Join(in, ","),
			fmt.Sprintf("CfgTRES=cpu=%d,mem=%dM,billing=%d,gres/gpu=%d", n.CPU/1000, n.RAM, n.CPU/1000, len(n.GPUs)),
			fmt.Sprintf("AllocTRES=cpu=%d,mem=%s,gres/gpu=%s", d.cpus, sizeText(d.ram), heldText(d)),
		}
		if d.reason != "none" {
			lines = append(lines, "Reason="+d.reason)
		}
		c.block(s, lines)
	}
	return 0, nil
}

func heldText(n *nodeState) string {
	held := 0
	for _, g := range n.GPUs {
		if g.Free < 1000 {
			held++
		}
	}
	return strconv.Itoa(held)
}

func (c *command) showPartitions(s *settings, names string) (int, error) {
	v, err := c.view(c.svc.Jobs())
	if err != nil {
		return 1, err
	}
	hit := false
	for _, p := range v.parts {
		if names != "" && !slices.Contains(strings.Split(names, ","), p.Name) {
			continue
		}
		hit = true
		var cpu, ram int64
		for _, n := range v.nodes {
			if slices.Contains(p.Nodes, n.Name) {
				cpu, ram = cpu+n.CPU/1000, ram+n.RAM
			}
		}
		yes := map[bool]string{true: "YES", false: "NO"}
		limit := func(d api.Duration, none string) string {
			if d == 0 {
				return none
			}
			return longClock(time.Duration(d))
		}
		c.block(s, []string{
			"PartitionName=" + p.Name,
			"AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
			"AllocNodes=ALL Default=" + yes[p.Default] + " QoS=N/A",
			"DefaultTime=" + limit(p.DefaultTime, "NONE") +
				" DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
			"MaxNodes=UNLIMITED MaxTime=" + limit(p.MaxTime, "UNLIMITED") +
				" MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
			"Nodes=" + CompressHosts(p.Nodes),
			fmt.Sprintf("PriorityJobFactor=1 PriorityTier=%d RootOnly=NO ReqResv=NO OverSubscribe=NO",
				max(p.PriorityTier, 1)),
			fmt.Sprintf("State=UP TotalCPUs=%d TotalNodes=%d SelectTypeParameters=NONE", cpu, len(p.Nodes)),
			fmt.Sprintf("TRES=cpu=%d,mem=%dM,node=%d,billing=%d", cpu, ram, len(p.Nodes), cpu),
		})
	}
	if !hit && names != "" {
		return 1, says("Partition %s not found", names)
	}
	return 0, nil
}

// writeScript writes the script that a job was submitted with.
func (c *command) writeScript(args []string) (int, error) {
	if len(args) < 2 || !strings.HasPrefix("batch_script", strings.ToLower(args[0])) {
		return 1, fmt.Errorf("write batch_script JOB [FILE|-]")
	}
	jobs, err := c.named(args[1])
	if err != nil {
		return 1, err
	}
	j := jobs[0]
	if j.Submission.Script == "" {
		return 1, fmt.Errorf("job script retrieval failed: job %s has no script", args[1])
	}
	file := fmt.Sprintf("slurm-%d.sh", j.ID)
	if len(args) > 2 {
		file = args[2]
	}
	if file == "-" {
		c.printf("%s", j.Submission.Script)
		return 0, nil
	}
	if err := os.WriteFile(file, []byte(j.Submission.Script), 0o700); err != nil {
		return 1, err
	}
	c.printf("batch script for job %s written to %s\n", args[1], file)
	return 0, nil
}
