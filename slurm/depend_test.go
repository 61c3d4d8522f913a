package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dependencies lets jobs depend on others that ended in all ways, under the real Slurm and under muster serve
// with the same commands, and compares which run, which wait and which never will.
func (d *differences) dependencies(t *testing.T, o *oracle) {
	slurms, ours := o.subject(), musterAsSlurm(t)
	want, got := dependents(t, slurms), dependents(t, ours)
	// a job that may run at once, after the others: the scheduler has considered them
	for _, u := range []*subject{slurms, ours} {
		u.run(t, "sbatch", "--wait", "-o", "/dev/null", "--wrap", "true")
	}
	time.Sleep(2 * time.Second) // the oracle checks dependencies once a second
	for _, x := range want {
		k := slices.IndexFunc(got, func(y dependent) bool { return y.key == x.key })
		a, b := "", "nothing"
		for range 200 {
			a, b = slurms.condition(t, x.id), ours.condition(t, got[k].id)
			if a == b || chosen[x.key] != "" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if a != b {
			d.add(x.key, "Slurm: it %s; Muster: it %s", a, b)
		}
	}
	if len(want) < 45 {
		t.Errorf("only %d dependencies compared", len(want))
	}
}

// dependent is a job that depends on others.
type dependent struct {
	key string
	id  string
}

// dependents submits the prerequisites and, when those that end have ended, the dependent jobs.
func dependents(t *testing.T, u *subject) (all []dependent) {
	submit := func(words ...string) string {
		return u.run(t, "sbatch", append([]string{"--parsable", "-o", "/dev/null"}, words...)...)
	}
	others := []dependent{
		{"completed", submit("--wrap", "true")},
		{"failed", submit("--wrap", "exit 3")},
		{"cancelled", submit("-H", "--wrap", "true")},
		{"array", submit("-a", "1-2", "--wrap", "[ $SLURM_ARRAY_TASK_ID = 1 ]")},
		{"array-ok", submit("-a", "1-2", "--wrap", "true")},
		{"running", submit("--wrap", "exec sleep 600")},
		{"pending", submit("-H", "--wrap", "true")},
		{"half", submit("-a", "1-2", "--wrap", "[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 1; exec sleep 600")},
		{"half-ok", submit("-a", "1-2", "--wrap", "[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 0; exec sleep 600")},
		{"half-begun", submit("-a", "1-2%1", "--wrap", "exec sleep 600")},
	}
	id := func(name string) string {
		return others[slices.IndexFunc(others, func(x dependent) bool { return x.key == name })].id
	}
	u.run(t, "scancel", id("cancelled"))
	settled := func() bool {
		out := u.run(t, "squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%F_%K %t")
		left := map[string]int{}
		for _, l := range strings.Split(out, "\n") {
			f := strings.Fields(l)
			left[strings.TrimSuffix(f[0], "_N/A")]++
			if f[1] == "CG" {
				return false
			}
		}
		return len(left) == 6 && left[id("half")+"_2"] == 1 && left[id("half-ok")+"_2"] == 1 &&
			strings.Contains(out, id("running")+"_N/A R")
	}
	for i := 0; !settled(); i++ {
		if i == 600 {
			t.Fatalf("waited in vain for the first jobs to end:\n%s", u.run(t, "squeue", "-r"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	add := func(key string, words ...string) {
		all = append(all, dependent{"dep " + key, submit(append(words, "--wrap", "true")...)})
	}
	for _, x := range others {
		for _, typ := range []string{"after", "afterany", "afterok", "afternotok"} {
			add(typ+" "+x.key, "-d", typ+":"+x.id)
		}
	}
	for _, x := range []string{"completed", "running"} {
		add("after+1 "+x, "-d", "after:"+id(x)+"+1")
	}
	add("one element", "-d", "afterok:"+id("half")+"_1")
	add("any: failed or completed", "-d", fmt.Sprintf("afterok:%s?afterok:%s", id("failed"), id("completed")))
	add("any: failed or running", "-d", fmt.Sprintf("afterok:%s?afterany:%s", id("failed"), id("running")))
	add("any: never", "-d", fmt.Sprintf("afterok:%s?afternotok:%s", id("failed"), id("completed")))
	add("all: failed and running", "-d", fmt.Sprintf("afterok:%s,afterany:%s", id("failed"), id("running")))
	add("all: completed and running", "-d", fmt.Sprintf("afterok:%s,afterany:%s", id("completed"), id("running")))
	add("all: running and completed", "-d", fmt.Sprintf("after:%s,afterok:%s", id("running"), id("completed")))
	for _, x := range []string{"array", "half", "half-ok"} { // each element waits for its counterpart
		corr := submit("-a", "1-2", "-d", "aftercorr:"+id(x), "--wrap", "true")
		for i := 1; i <= 2; i++ {
			all = append(all, dependent{"dep aftercorr " + x + " " + strconv.Itoa(i), corr + "_" + strconv.Itoa(i)})
		}
	}
	add("aftercorr of no array", "-d", "aftercorr:"+id("half"))
	submit("-H", "-J", "single", "--wrap", "true")
	add("singleton single", "-J", "single", "-d", "singleton")
	add("singleton another", "-J", "another", "-d", "singleton")
	return all
}

// condition says how a job's condition stands.
func (u *subject) condition(t *testing.T, id string) string {
	out := u.run(t, "scontrol", "show", "job", id)
	switch {
	case strings.Contains(out, "DependencyNeverSatisfied"):
		return "never runs"
	case strings.Contains(out, "JobState=PENDING"):
		return "waits"
	case strings.Contains(out, "JobState=COMPLETED"), strings.Contains(out, "JobState=RUNNING"),
		strings.Contains(out, "JobState=COMPLETING"):
		return "runs"
	}
	return out
}
