package trace

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// polluxFormat is the workload of the Pollux and Sia simulators. It states an application, a number
// of replicas and a batch size, but no run time, which is computed from the artifact's measurements
// (pollux_profile.go).
var polluxFormat = Format{
	Name:   "pollux",
	About:  "Pollux/Sia workloads: name,time,application,num_replicas,batch_size",
	Detect: columns(',', "name", "time", "application", "num_replicas", "batch_size"),
	Read:   readPollux,
}

// polluxRestart is the cost of a (re)start in the published simulator.
const polluxRestart = 30 * time.Second

func readPollux(b *Builder) error {
	t, err := b.table(',', "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return err
	}
	dir, err := b.polluxProfiles()
	if err != nil {
		return err
	}
	name, at, app := t.col("name"), t.col("time"), t.col("application")
	gpus, batch := t.col("num_replicas"), t.col("batch_size")
	apps := map[string]*polluxApp{}
	err = t.each(func(e *Entry) bool {
		e.Work = &Work{Batch: t.num(batch, 1, 1<<30)}
		j := &e.Job
		j.Name, j.Model, j.Tier = t.str(name), t.str(app), cluster.Standard
		j.Submit = t.at(at, time.Second)
		j.Checkpoint.Restart = polluxRestart
		n := int(t.num(gpus, 1, 1024))
		b.gang(e, n, 0, 0)
		if t.reason == "" {
			a, ok := apps[j.Model]
			if !ok {
				if a, err = readPolluxApp(dir, j.Model); err != nil {
					t.fail(app, "an application with measurements: "+err.Error())
				}
				apps[j.Model] = a
			} else if a == nil {
				t.fail(app, "an application with measurements in "+dir)
			}
			if a != nil {
				if e.Run, err = a.run(n, int(e.Work.Batch)); err != nil {
					t.fail(batch, err.Error())
				}
			}
		}
		return true
	})
	b.note("run times are computed from the measured step times, on nodes of %d GPUs", polluxNode)
	return err
}

// polluxProfiles finds the measurements: the given directory, or "traces" in the trace's directory
// or its parent.
func (b *Builder) polluxProfiles() (string, error) {
	if b.opt.Profiles != "" {
		return b.opt.Profiles, nil
	}
	if b.opt.dir != "" {
		for _, up := range []string{"", ".."} {
			dir := filepath.Join(b.opt.dir, up, "traces")
			// the pattern is constant and valid
			if found, _ := filepath.Glob(filepath.Join(dir, "*", "placements.csv")); len(found) > 0 {
				return dir, nil
			}
		}
	}
	return "", b.fatal(0,
		"this workload has no run times: give the directory with the measured step times as profiles "+
			"(one directory per application, with placements.csv, scalability.csv and validation-*.csv)")
}

// polluxName rejects application names that escape the directory.
func polluxName(app string) error {
	if app == "" || strings.ContainsAny(app, `/\`) || strings.HasPrefix(app, ".") {
		return fmt.Errorf("a plain name")
	}
	return nil
}
