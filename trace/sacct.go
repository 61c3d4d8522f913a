package trace

import (
	"bytes"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// sacctFormat is Slurm's accounting as printed by sacct --parsable2 (or --parsable): a header line,
// fields joined by "|", in any order. Times without a zone count as UTC, so that hours of the day
// remain those of the site.
var sacctFormat = Format{
	Name:  "sacct",
	About: "Slurm: sacct --parsable2 with JobID, Submit, Start, End, State, AllocTRES and more",
	Detect: func(head []byte, name string) bool {
		return columns('|', "jobid", "submit", "state")(head, name)
	},
	Read: readSacct,
}

// sacctCols are the numbers of the columns in use; -1: absent.
type sacctCols struct {
	id, name, user, account, partition   int
	submit, eligible, start, end         int
	elapsed, raw, state, limit, limitRaw int
	alloc, req, cpus                     int
}

func readSacct(b *Builder) error {
	t, err := b.table('|', "jobid", "submit", "start", "state")
	if err != nil {
		return err
	}
	c := sacctCols{
		id: t.col("jobid"), name: t.col("jobname"), user: t.col("user"), account: t.col("account"),
		partition: t.col("partition"), submit: t.col("submit"), eligible: t.col("eligible"),
		start: t.col("start"), end: t.col("end"), elapsed: t.col("elapsed"), raw: t.col("elapsedraw"),
		state: t.col("state"), limit: t.col("timelimit"), limitRaw: t.col("timelimitraw"),
		alloc: t.col("alloctres"), req: t.col("reqtres"), cpus: max(t.col("alloccpus"), t.col("ncpus")),
	}
	if c.raw < 0 && c.elapsed < 0 && c.end < 0 {
		return b.fatal(1, `no column "ElapsedRaw", "Elapsed" or "End": one of them is needed for the run time`)
	}
	if c.alloc < 0 && c.req < 0 {
		return b.fatal(1, `no column "AllocTRES" or "ReqTRES": one of them is needed for the number of GPUs`)
	}
	b.calendar = true
	var left unusable
	err = t.each(func(e *Entry) bool {
		if bytes.IndexByte(t.raw(c.id), '.') >= 0 {
			left.steps++
			return false
		}
		if !left.ran(t, e, c.state, c.start, -1) {
			return false
		}
		t.sacctJob(&c, e)
		return true
	})
	left.note(b)
	return err
}

// sacctJob reads a row that is a job that ran.
func (t *table) sacctJob(c *sacctCols, e *Entry) {
	j := &e.Job
	j.Name, j.User, j.Tier = t.str(c.name), t.str(c.user), cluster.Standard
	if len(t.raw(c.id)) == 0 {
		t.fail(c.id, "a job id such as 123 or 123_4")
	}
	if j.Name == "" {
		j.Name = t.str(c.id)
	}
	if j.Queue = t.str(c.account); j.Queue == "" {
		j.Queue = t.str(c.partition)
	}
	if p := t.str(c.partition); t.b.opt.Partitions && p != "" {
		j.Partitions = []string{p}
	}
	j.Submit = t.stamp(c.submit)
	if c.eligible >= 0 && !t.missing(c.eligible) {
		// Held or dependent jobs become eligible after their submission.
		if at := t.stamp(c.eligible); at > j.Submit {
			j.Begin = at
		}
	}
	switch {
	case c.raw >= 0:
		e.Run = t.dur(c.raw, time.Second)
	case c.elapsed >= 0:
		e.Run = t.clock(c.elapsed)
	default:
		e.Run = t.between(c.start, c.end)
	}
	switch {
	case c.limitRaw >= 0:
		if d, ok := parseAmount(t.raw(c.limitRaw), time.Minute); ok {
			j.Limit = d
		} else if d, ok := slurmDuration(t.raw(c.limitRaw)); ok && d == 0 {
			j.Limit = 0 // UNLIMITED, Partition_Limit or nothing
		} else {
			t.fail(c.limitRaw, "a number of minutes, UNLIMITED or Partition_Limit")
		}
	case c.limit >= 0:
		j.Limit = t.clock(c.limit)
	}
	col := c.alloc
	if col < 0 || len(t.raw(col)) == 0 {
		col = c.req
	}
	res, ok := parseTRES(t.raw(col))
	if !ok {
		t.fail(col, `resources such as "cpu=8,gres/gpu=2,mem=64G,node=1"`)
	}
	if res.cpu == 0 {
		res.cpu = 1000 * t.num(c.cpus, 0, cluster.MaxTasks)
	}
	res.apply(t.b, e)
}

// clock reads a Slurm duration.
func (t *table) clock(i int) time.Duration {
	d, ok := slurmDuration(t.raw(i))
	if !ok {
		t.fail(i, "a Slurm duration such as 1-02:30:00, 02:30:00 or UNLIMITED")
	}
	return d
}
