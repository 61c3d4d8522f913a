package trace

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// pbsFormat is the accounting log of PBS Pro, OpenPBS and Torque: a line an event, `date;type;job;key=value key=value`.
// Only the ends of jobs (type E) become jobs: they say everything.
var pbsFormat = Format{
	Name:   "pbs",
	About:  "accounting log of PBS Pro, OpenPBS or Torque",
	Detect: detectPBS,
	Read:   readPBS,
}

const pbsDate = "01/02/2006 15:04:05"

func detectPBS(head []byte, _ string) bool {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	f := bytes.SplitN(line, []byte(";"), 4)
	if len(f) != 4 || len(f[1]) != 1 {
		return false
	}
	_, err := time.Parse(pbsDate, string(f[0]))
	return err == nil
}

func readPBS(b *Builder) error {
	in := lines{in: b.in}
	began, ended := map[string]bool{}, map[string]bool{}
	b.calendar = true
	for {
		line, long, err := b.row(&in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		f := strings.SplitN(string(line), ";", 4)
		if long || len(f) != 4 {
			err = b.bad(in.n, "must be date;type;job;key=value key=value")
		} else if began[f[2]] = began[f[2]] || f[1] == "S"; f[1] == "E" {
			ended[f[2]] = true
			err = b.pbsJob(f[2], pbsFields(f[3]), in.n)
		}
		if err != nil {
			return err
		}
	}
	open := 0
	for id := range began {
		if !ended[id] {
			open++
		}
	}
	if open > 0 {
		b.note("left out: %d jobs that started and whose end is not in the log", open)
	}
	return nil
}

// pbsFields are the keys of an event; a value may be quoted, and then has blanks.
func pbsFields(text string) map[string]string {
	fields := map[string]string{}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimLeft(text, " ") {
		key, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		value, end := "", strings.IndexByte(rest, ' ')
		if strings.HasPrefix(rest, `"`) && strings.Count(rest, `"`) > 1 {
			value, text, _ = strings.Cut(rest[1:], `"`)
		} else if end < 0 {
			value, text = rest, ""
		} else {
			value, text = rest[:end], rest[end:]
		}
		fields[key] = value
	}
	return fields
}

// pbsJob adds a job that ended.
func (b *Builder) pbsJob(id string, f map[string]string, line int) error {
	e := Entry{Outcome: Succeeded}
	j := &e.Job
	j.Name, j.User, j.Tier = b.text([]byte(f["jobname"])), b.text([]byte(f["user"])), cluster.Standard
	if j.Name == "" {
		j.Name = b.text([]byte(id))
	}
	if j.Queue = b.text([]byte(f["account"])); j.Queue == "" {
		j.Queue = b.text([]byte(f["queue"]))
	}
	times := [4]int64{}
	for i, key := range []string{"ctime", "etime", "start", "end"} {
		n, err := strconv.ParseInt(f[key], 10, 64)
		if err != nil && key != "etime" || n < 0 || n > int64(cluster.MaxDuration/time.Second) {
			return b.bad(line, key+" "+quote([]byte(f[key]))+": must be Unix seconds")
		}
		times[i] = n
	}
	if times[3] < times[2] {
		return b.bad(line, "ends before it starts")
	}
	j.Submit = cluster.Time(times[0]) * cluster.Time(time.Second)
	if times[1] > times[0] { // it was held, or waited for others
		j.Begin = cluster.Time(times[1]) * cluster.Time(time.Second)
	}
	e.Run = time.Duration(times[3]-times[2]) * time.Second
	switch code, err := strconv.Atoi(f["Exit_status"]); {
	case err != nil || code == 271 || code == 265: // qdel: 256 + SIGTERM, 256 + SIGKILL
		e.Outcome = Cancelled
	case code != 0:
		e.Outcome = Failed
	}
	if text := f["Resource_List.walltime"]; text != "" {
		d, ok := slurmDuration([]byte(text))
		if !ok {
			return b.bad(line, "Resource_List.walltime "+quote([]byte(text))+": must be hours:minutes:seconds")
		}
		j.Limit = d
	}
	if what := b.pbsTasks(&e, f); what != "" {
		return b.bad(line, what)
	}
	return b.add(&e, line)
}

// pbsTasks reads what a job asked for: chunks (PBS Pro's select, Torque's nodes), or sums for the whole job. It returns
// what is wrong.
func (b *Builder) pbsTasks(e *Entry, f map[string]string) string {
	key := "Resource_List.select"
	if f[key] == "" && strings.Contains(f["Resource_List.nodes"], "gpus=") {
		key = "Resource_List.nodes"
	}
	if f[key] == "" {
		sums := [2]int64{}
		for i, key := range []string{"Resource_List.ngpus", "Resource_List.ncpus"} {
			n, err := strconv.ParseInt(f[key], 10, 64)
			if f[key] != "" && err != nil || n < 0 || n > cluster.MaxTasks {
				return key + " " + quote([]byte(f[key])) + ": must be a whole number"
			}
			sums[i] = n
		}
		b.gang(e, int(sums[0]), cluster.Milli(1000*sums[1]), 0)
		return ""
	}
	for chunk := range strings.SplitSeq(f[key], "+") {
		set := cluster.TaskSet{Count: 1}
		for i, part := range strings.Split(chunk, ":") {
			name, value, has := strings.Cut(part, "=")
			if !has {
				value = part
			}
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case i > 0 && name != "ngpus" && name != "gpus" && name != "ncpus" && name != "ppn":
				continue // memory, a host's name, a feature
			case i == 0 && !has && err != nil:
				continue // a host's name
			case err != nil || n < 0 || n > cluster.MaxTasks:
				return key + " " + quote([]byte(f[key])) + ": must be chunks such as 2:ncpus=8:ngpus=4"
			case !has:
				set.Count = int(n)
			case name == "ngpus" || name == "gpus":
				set.Request.GPUs = int(n)
			default:
				set.Request.CPU = cluster.Milli(1000 * n)
			}
		}
		if set.Count > 0 {
			e.Job.Tasks = append(e.Job.Tasks, set)
		}
	}
	if len(e.Job.Tasks) == 0 {
		return key + " " + quote([]byte(f[key])) + ": asks for nothing"
	}
	return ""
}
