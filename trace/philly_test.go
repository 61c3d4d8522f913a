package trace

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func TestPhillySample(t *testing.T) {
	wl := openSample(t, "philly.csv", Options{})
	equal(t, "format", wl.Format, "philly")
	equal(t, "jobs", len(wl.Jobs), 3)
	equal(t, "epoch", wl.Epoch, time.Date(2021, 3, 1, 9, 59, 30, 0, time.UTC).Unix())
	first := wl.Jobs[0]
	equal(t, "queue", first.Job.Queue, "1e9")
	equal(t, "run", first.Run, 3600*time.Second+500*time.Millisecond)
	equal(t, "gpus", first.Job.GPUs(), 8)
	equal(t, "flexible", first.Flexible, true)
	equal(t, "tier", first.Job.Tier, cluster.Standard)
	equal(t, "second", wl.Jobs[1].Job.Queue, "red")
	equal(t, "third", wl.Jobs[2].Job.Submit, cluster.Time(30*time.Second))
	equal(t, "notes", len(wl.Notes), 2)
	checkRoundTrip(t, wl)
}

func TestPhillyBad(t *testing.T) {
	const head = "timestamp,duration,num_gpus,gpu_time,cluster\n"
	checkBad(t, "philly", []badRow{
		{"negative", head + "2021-03-01 10:00:00,-3,1,1,a\n",
			`x:2: duration "-3": must be a number of seconds from 0 to 3153600000 (100 years)`},
		{"nan", head + "2021-03-01 10:00:00,NaN,1,1,a\n", `duration "NaN": must be a number`},
		{"huge", head + "2021-03-01 10:00:00,1e300,1,1,a\n", `duration "1e300"`},
		{"no gpu", head + "2021-03-01 10:00:00,1,0,1,a\n", `num_gpus "0": must be a whole number from 1 to 1048576`},
		{"many gpus", head + "2021-03-01 10:00:00,1,99999999999999999999,1,a\n", `num_gpus "99999999999999999999"`},
		{"date", head + "2021-02-31 10:00:00,1,1,1,a\n",
			`timestamp "2021-02-31 10:00:00": must be a date and time such as`},
		{"fields", head + "2021-03-01 10:00:00,1,1,a\n", `x:2: has 4 fields, must be 5`},
		{"quote", head + "2021-03-01 10:00:00,1,1,1,\"a\n", `x:2: a quoted field is malformed`},
		{"header", "timestamp,duration\n", `x:1: no column "num_gpus" in the header "timestamp,duration"`},
	})
}

func TestPhillyShared(t *testing.T) {
	wl := openShared(t, "philly/philly_pollux.csv", Options{})
	equal(t, "jobs", len(wl.Jobs), 82247)
	queues := map[string]bool{}
	for i := range wl.Jobs {
		queues[wl.Jobs[i].Job.Queue] = true
	}
	equal(t, "clusters", len(queues), 15)
	equal(t, "6214e9 is text", queues["6214e9"], true)
	equal(t, "epoch", wl.Epoch, time.Date(2017, 9, 4, 10, 30, 41, 0, time.UTC).Unix())
	equal(t, "time 0", wl.Jobs[0].Job.Submit, 0)
	checkRoundTrip(t, wl)
}

func FuzzPhilly(f *testing.F) {
	fuzzFormat(f, "philly",
		"timestamp,duration,num_gpus,gpu_time,cluster\n\"2021-03-01 10:00:00\",1e3,8.0,1,\"a\nb\"\n",
		"timestamp,duration,num_gpus,cluster\n2021-03-01T10:00:00.5+08:00,.5,1,a\r\n")
}

func BenchmarkPhilly(b *testing.B) {
	path := shared(b, "philly/philly_pollux.csv")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(path, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
