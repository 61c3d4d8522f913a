//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An elastic job is resized in place: asked for a checkpoint, stopped, started
// with other tasks on other devices, without waiting again.
func TestElasticResize(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	script := `trap 'echo saved > $MUSTER_CHECKPOINT_DIR/$MUSTER_RANK; exit 0' USR1
[ "$MUSTER_RANK" = 0 ] && echo "size=$MUSTER_WORLD_SIZE restart=$MUSTER_RESTART_COUNT $(cat $MUSTER_CHECKPOINT_DIR/0)" >> ` + d.dir + `/sizes
while :; do sleep 0.2; done`
	sizes := func(want string) {
		t.Helper()
		if !until(func() bool { return d.read("sizes") == want }) {
			t.Fatalf("the job noted\n%swanted\n%s%s", d.read("sizes"), want, d.must("nodes"))
		}
	}
	d.must("submit", "--gpus", "1", "--min-tasks", "1", "--max-tasks", "4", "-o", "train.out", "--", "sh", "-c", script)
	sizes("size=4 restart=0 \n")
	d.must("submit", "--gpus", "3", "--", "sh", "-c", "sleep 0.3")
	sizes("size=4 restart=0 \nsize=1 restart=0 saved\n")
	d.must("wait", "2")
	sizes("size=4 restart=0 \nsize=1 restart=0 saved\nsize=4 restart=0 saved\n")
	d.want(d.must("show", "1"), `"restarts": 0`, `"preemptions": 0`, `"state": "running"`)
}

// Tasks of a gang that reach their handler late are asked for a checkpoint when
// they do; those that have none do not hold up the others until the grace is over.
func TestAskedTaskByTask(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	for id, script := range []string{
		`cd $MUSTER_CHECKPOINT_DIR; [ -e 1 ] && exit 0; [ $MUSTER_RANK = 1 ] && sleep 1.5
trap 'until [ -e 1 ] || [ $MUSTER_RANK = 1 ]; do sleep 0.2; done; touch $MUSTER_RANK; exit 0' USR1
[ $MUSTER_RANK = 0 ] && touch up; while :; do sleep 0.2; done`,
		`cd $MUSTER_CHECKPOINT_DIR; [ -e 0 ] && exit 0; [ $MUSTER_RANK = 1 ] && exec sleep 1000
trap 'touch 0; exit 0' USR1; touch up; while :; do sleep 0.2; done`,
	} {
		number := strconv.Itoa(id + 1)
		d.must("submit", "--gpus", "1", "--tasks", "2", "-o", "/dev/null", "--", "sh", "-c", script)
		up := filepath.Join(d.dir, "state", "jobs", number, "checkpoint", "up")
		d.untilSays(`"state": "running"`, "show", number)
		d.eventually("there is "+up, func() bool { _, err := os.Stat(up); return err == nil })
		d.must("requeue", number)
		if out, code := d.try("wait", number); code != 0 {
			t.Fatalf("job %s does not end: %s %s", number, out, d.must("show", number))
		}
		d.want(d.must("show", number), `"restarts": 1`, `"state": "completed"`)
	}
}

// A person suspends a job, which stays on its GPU over a restart of the daemon.
func TestSuspend(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "sh", "-c",
		`i=0; until [ -e `+d.dir+`/go ]; do i=$((i+1)); echo $i >> `+d.dir+`/ticks; sleep 0.05; done`)
	ticks := func() int { return strings.Count(d.read("ticks"), "\n") }
	d.untilSays(`"state": "running"`, "show", "1")
	if out, code := d.try("resume", "1"); code == 0 {
		t.Errorf("a running job was resumed: %s", out)
	}
	d.want(d.must("suspend", "1"), "job 1: suspended")
	d.kill()
	d.start()
	time.Sleep(200 * time.Millisecond)
	before := ticks()
	time.Sleep(300 * time.Millisecond)
	if after := ticks(); after != before {
		t.Errorf("suspended, the job went from %d to %d", before, after)
	}
	d.want(d.must("nodes"), " 0% ")
	d.want(d.must("resume", "1"), "job 1: running")
	d.eventually("it goes on", func() bool { return ticks() > before })
	d.write("go", "")
	d.must("wait", "1")
	for i, line := range strings.Fields(d.read("ticks")) {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("tick %d is %q", i+1, line)
		}
	}
}
