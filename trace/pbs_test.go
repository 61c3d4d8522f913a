package trace

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// An accounting log of PBS: chunks and sums, held and cancelled jobs; a job that still runs is left out.
func TestPBS(t *testing.T) {
	wl := openSample(t, "pbs.log", Options{})
	equal(t, "format", wl.Format, "pbs")
	equal(t, "epoch", wl.Epoch, 1775030400)
	checkRows(t, wl,
		row{name: "train", queue: "vision lab", user: "ann", run: time.Hour, gpus: 8, tier: cluster.Standard,
			outcome: Succeeded, limit: 4 * time.Hour},
		row{name: "torque", queue: "batch", user: "bob", submit: sec(60), run: 10 * time.Minute, gpus: 2,
			tier: cluster.Standard, outcome: Cancelled, limit: 10 * time.Minute},
		row{name: "cpu", queue: "batch", user: "bob", submit: sec(61), run: time.Minute, tier: cluster.Standard,
			outcome: Failed})
	if got := wl.Jobs[0].Job.Tasks[0]; got.Count != 2 || got.Request.GPUs != 4 || got.Request.CPU != 8000 {
		t.Errorf("two chunks of four GPUs are %+v", got)
	}
	equal(t, "begin", wl.Jobs[1].Job.Begin, sec(120))
	checkNotes(t, wl, "left out: 1 jobs that started and whose end is not in the log")
	const job = "04/01/2026 09:11:00;E;3.pbs;ctime=1 start=2 end=3 Exit_status=0"
	checkBad(t, "pbs", []badRow{
		{"fields", "04/01/2026 09:11:00;E;3.pbs", "must be date;type;job;key=value"},
		{"time", "04/01/2026 09:11:00;E;3.pbs;ctime=x start=2 end=3", `ctime "x": must be Unix seconds`},
		{"order", "04/01/2026 09:11:00;E;3.pbs;ctime=1 start=4 end=3", "ends before it starts"},
		{"chunks", job + " Resource_List.select=2:ngpus=many", "must be chunks such as 2:ncpus=8:ngpus=4"},
		{"nothing", job + " Resource_List.select=0:ngpus=1", "asks for nothing"},
		{"sum", job + " Resource_List.ngpus=-1", "must be a whole number"},
		{"limit", job + " Resource_List.walltime=long", "must be hours:minutes:seconds"},
	})
}

func FuzzPBS(f *testing.F) { fuzzFormat(f, "pbs") }
