//go:build linux

package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// shareUnderMPS has job 7 have a share of the second GPU, which it returns, under MPS, whose control program is
// a script.
func shareUnderMPS(t *testing.T, m *Machine, src *played, text string) (uuid string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	m.opt.Sharing.Program, m.opt.Rules.Spec.Sharing = program, cluster.MPS
	if err := m.findMPS(); err != nil {
		t.Fatal(err)
	}
	uuid = src.devices[1].UUID
	holds := engine.JobHoldings{Allocs: []engine.Alloc{{GPUs: 2, Share: 250}}}
	m.jobs[7] = &job{Job: record.Job{ID: 7, Info: &record.Info{Record: engine.JobRecord{Holdings: holds}}}}
	if err := m.mps.Need(uuid); err != nil {
		t.Fatal(err)
	}
	return uuid
}

// A GPU is MPS' alone for as long as shares are on it, and no longer when another
// starts there, however short ago the last share has left.
func TestMPSLeaves(t *testing.T) {
	m, src := accounts(t)
	// when it is told to quit it goes on answering for a while, as one does that waits for its server
	text := "#!/bin/sh\nup=$CUDA_MPS_PIPE_DIRECTORY/up\n[ \"$1\" = -d ] && { echo 3 >$up; exit; }\n[ -e $up ] || exit 1\nread c\n" +
		"[ $c = quit ] && { : >$up.quit; exit; }\n[ -e $up.quit ] || exit 0\nn=$(cat $up); [ $n = 0 ] && { rm $up; exit 1; }\necho $((n-1)) >$up\n"
	uuid := shareUnderMPS(t, m, src, text)
	other := &runner{m: m, Run: &run.Run{ID: 8}}
	task := func(d show.Device) []*run.Task { return []*run.Task{{Devices: []show.Device{d}}} }
	for _, step := range []struct {
		what   string
		job    bool
		device show.Device
		alone  bool
	}{
		{"another share", true, show.Device{UUID: uuid, Share: 250}, true},
		{"a whole GPU beside", true, show.Device{UUID: src.devices[0].UUID}, true},
		{"a share when no server is there", false, show.Device{UUID: uuid, Share: 250}, true},
		{"an instance", false,
			show.Device{UUID: "MIG-to-be-made/" + uuid + "/0", Parent: uuid, Profile: "3g.40gb", Share: 428}, false},
		{"the whole GPU", false, show.Device{UUID: uuid}, false},
	} {
		if !step.job {
			delete(m.jobs, 7)
		}
		if err := other.endMPS(task(step.device)); err != nil {
			t.Error(err)
		}
		if src.exclusive[uuid] != step.alone {
			t.Errorf("%s: MPS' alone: %v", step.what, src.exclusive[uuid])
		}
	}
	if err := m.mps.Need(uuid); err != nil || !src.exclusive[uuid] {
		t.Errorf("it begins again: %v, MPS' alone: %v", err, src.exclusive[uuid])
	}
}

// A job that fails when its GPU's server ends, while others of its user are on it, too, may not be the cause.
func TestFaultOfOthers(t *testing.T) {
	m, src := accounts(t)
	m.opt.Now = time.Now
	list := filepath.Join(t.TempDir(), "servers")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\n")
	shareUnderMPS(t, m, src, "#!/bin/sh\n[ \"$1\" = -d ] || [ -d $CUDA_MPS_PIPE_DIRECTORY ] && cat "+list+"\n")
	server := exec.Command("sleep", "1000")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	write(fmt.Sprintln(server.Process.Pid))
	on := []engine.Alloc{{GPUs: 2, Share: 250, Tasks: 1}}
	for _, id := range []cluster.JobID{7, 8, 9} {
		m.jobs[id] = &job{Job: record.Job{ID: id,
			Info: &record.Info{User: User{UID: os.Getuid()}, On: on,
				Record: engine.JobRecord{Holdings: engine.JobHoldings{Allocs: on}}}}}
	}
	r := &runner{m: m, Run: &run.Run{ID: 7}, job: m.jobs[7]}
	if got := r.faultOfOthers(); got != "" {
		t.Errorf("while the server lives: %q", got)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	write("1\n")
	r.Tasks = []*run.Task{{State: &shim.State{Started: time.Now(), Ended: time.Now(), Exit: 3}}}
	if got := r.faultOfOthers(); got != "the MPS server of GPU 1 failed; jobs 8, 9 were on it, too" {
		t.Errorf("when it has ended: %q", got)
	}
}
