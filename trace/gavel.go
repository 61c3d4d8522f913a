package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// gavelFormat covers Gavel's three forms: lists with run times and unit-rate arrivals (with a
// header line), the per-cluster Philly traces (7 tab-separated fields) and the traces of the
// physical cluster (10). The last two state training steps; the run time is steps / (steps per
// second on a V100), from Gavel's throughput table. Job.Model is Gavel's job type, as in that
// table.
var gavelFormat = Format{
	Name:  "gavel",
	About: "Gavel: continuous lists (unit-rate arrivals), .trace files with 7 or 10 tab-separated fields",
	Detect: func(head []byte, name string) bool {
		if columns(',', "job_type", "scale_factor", "total_steps", "arrival_unit_exponential")(head, name) {
			return true
		}
		line, _, _ := bytes.Cut(head, []byte("\n"))
		f := bytes.Split(line, []byte("\t"))
		return (len(f) == 7 || len(f) == 10) && bytes.Contains(line, []byte("python"))
	},
	Read: readGavel,
}

// gavelRate is the arrival rate at which the lists are read by default, in
// jobs per hour: the middle of the published range.
const gavelRate = 4.0

func readGavel(b *Builder) error {
	head, _ := b.in.Peek(headSize) // a read error recurs with the first line
	line, _, _ := bytes.Cut(head, []byte("\n"))
	switch bytes.Count(line, []byte("\t")) {
	case 6:
		return b.gavelTrace("simulation_throughputs.json", "job_type", "command", "num_steps_arg", "needs_data_dir",
			"total_steps", "arrival_time", "scale_factor")
	case 9:
		return b.gavelTrace("physical_cluster_throughputs.json", "job_type", "command", "working_directory",
			"num_steps_arg",
			"needs_data_dir", "total_steps", "scale_factor", "priority_weight", "slo", "arrival_time")
	}
	return b.gavelList()
}

// gavelList reads a list with run times. Arrivals are in units of the mean gap, so the reader
// chooses the rate.
func (b *Builder) gavelList() error {
	rate := b.opt.Rate
	if rate == 0 {
		rate = gavelRate
	}
	if !(rate > 0 && rate < 1e9) {
		return fmt.Errorf("rate %g: must be a number of jobs per hour above 0", rate)
	}
	t, err := b.table(',', "job_type", "scale_factor", "duration_s_on_v100", "arrival_unit_exponential")
	if err != nil {
		return err
	}
	id, kind, scale, dur := t.col("job_id"), t.col("job_type"), t.col("scale_factor"), t.col("duration_s_on_v100")
	steps, arrival := t.col("total_steps"), t.col("arrival_unit_exponential")
	unit := 3600 / rate // seconds
	err = t.each(func(e *Entry) bool {
		e.Work = &Work{Steps: t.real(steps, 0, maxSteps)}
		e.Job.Name, e.Job.Model, e.Job.Tier = t.str(id), t.str(kind), cluster.Standard
		at := t.real(arrival, 0, 1e12) * unit
		if at > cluster.MaxDuration.Seconds() {
			t.fail(arrival, "within 100 years at this rate")
			at = 0
		}
		e.Job.Submit = cluster.Time(at * float64(time.Second))
		e.Run = t.dur(dur, time.Second)
		b.gang(e, int(t.num(scale, 1, cluster.MaxTasks)), 0, 0)
		return true
	})
	b.note("arrivals at %g jobs per hour", rate)
	return err
}

// gavelTrace reads a trace that states steps.
func (b *Builder) gavelTrace(tableName string, names ...string) error {
	speeds, err := b.gavelSpeeds(tableName)
	if err != nil {
		return err
	}
	t := b.plain('\t', names...)
	kind, scale, steps, arrival := t.col("job_type"), t.col("scale_factor"), t.col("total_steps"), t.col("arrival_time")
	single := 0
	err = t.each(func(e *Entry) bool {
		e.Work = &Work{Steps: t.real(steps, 0, maxSteps)}
		e.Job.Model, e.Job.Tier = t.str(kind), cluster.Standard
		e.Job.Name = "job " + strconv.Itoa(t.line)
		e.Job.Submit = t.at(arrival, time.Second)
		gpus := t.num(scale, 1, cluster.MaxTasks)
		speed, ok := speeds[gavelKey(e.Job.Model, int(gpus))]
		if !ok {
			// The per-cluster traces also give several GPUs to types that Gavel cannot distribute;
			// those train as fast as on one.
			if speed, ok = speeds[gavelKey(e.Job.Model, 1)]; ok {
				single++
			}
		}
		run := e.Work.Steps / speed
		switch {
		case speed <= 0 && t.reason == "":
			t.fail(kind, fmt.Sprintf("a job type with a throughput on v100 in %s", tableName))
		case run > cluster.MaxDuration.Seconds():
			t.fail(steps, "a number of steps that takes less than 100 years")
		case t.reason == "":
			e.Run = time.Duration(run * float64(time.Second))
		}
		b.gang(e, int(gpus), 0, 0)
		return true
	})
	if single > 0 {
		b.note("%d jobs have no throughput at their number of GPUs; that of one GPU is taken", single)
	}
	return err
}

func gavelKey(kind string, gpus int) string { return fmt.Sprintf("('%s', %d)", kind, gpus) }

// gavelSpeeds reads steps per second alone on a V100 from Gavel's table: the given one, or one with
// the usual name in the trace's directory or its parent.
func (b *Builder) gavelSpeeds(name string) (map[string]float64, error) {
	path := b.opt.Throughputs
	if path == "" && b.opt.dir != "" {
		for _, dir := range []string{b.opt.dir, filepath.Join(b.opt.dir, "..")} {
			for _, ext := range []string{"", ".gz"} {
				if p := filepath.Join(dir, name+ext); path == "" && fileExists(p) {
					path = p
				}
			}
		}
	}
	if path == "" {
		return nil, b.fatal(0,
			"this Gavel trace states steps, not run times: give the throughput table (%s) as throughputs", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("throughput table: %w", err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("throughput table %s: %w", path, err)
		}
		in = z
	}
	// GPU type -> job type and GPUs -> "null" (alone) or a partner.
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(in).Decode(&all); err != nil {
		return nil, fmt.Errorf("throughput table %s: %w", path, err)
	}
	speeds := map[string]float64{}
	for key, row := range all["v100"] {
		var v float64
		if raw, ok := row["null"]; !ok {
			continue
		} else if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("throughput table %s: v100 %s: %w", path, key, err)
		}
		speeds[key] = v
	}
	if len(speeds) == 0 {
		return nil, fmt.Errorf("throughput table %s: no throughputs for v100", path)
	}
	return speeds, nil
}

func fileExists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir()
}
