//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurm runs one of the installed commands.
func (d *daemon) slurm(name string, args ...string) string {
	d.t.Helper()
	bin := filepath.Join(d.dir, "bin")
	cmd := patient(filepath.Join(bin, name), args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Slurm's commands, installed as links, talk to the daemon: a script with
// directives, a step inside it, a dependency, a listing, the accounting.
func TestSlurmCommands(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "8xH100-80GB")
	d.want(d.must("slurm", "install", filepath.Join(d.dir, "bin")), "sbatch", "export PATH=")
	script := `#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gres=gpu:2
#SBATCH --ntasks=2
#SBATCH -o out-%j.txt
echo "gpus $SLURM_JOB_GPUS of job $SLURM_JOB_ID"
srun bash -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS on $CUDA_VISIBLE_DEVICES'
`
	if err := os.WriteFile(filepath.Join(d.dir, "job.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d.want(d.slurm("sbatch", "--hold", "job.sh"), "Submitted batch job 1")
	if out := d.slurm("sbatch", "--parsable", "--dependency=afterok:1", "--wrap",
		"cat out-1.txt > copy"); strings.TrimSpace(out) != "2" {
		t.Errorf("sbatch --parsable says %q", out)
	}
	d.want(d.slurm("squeue"), "JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
		"(JobHeldUser)", "(Dependency)")
	d.slurm("scontrol", "update", "JobId=1", "TimeLimit=5", "JobName=renamed")
	d.want(d.slurm("scontrol", "show", "job", "1"), "JobName=renamed", "TimeLimit=00:05:00")
	d.slurm("scontrol", "release", "1")
	d.must("wait", "2")
	text, err := os.ReadFile(filepath.Join(d.dir, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	d.want(string(text), "gpus 0,1 of job 1", "rank 0 of 2", "rank 1 of 2")
	d.want(d.slurm("sacct", "-n", "-X", "-o", "JobID,JobName,State,ExitCode", "-P"), "1|renamed|COMPLETED|0:0",
		"2|wrap|COMPLETED|0:0")
	d.want(d.slurm("srun", "--gpus=1", "printenv", "CUDA_VISIBLE_DEVICES"), "GPU-simulated-0")
	d.want(d.slurm("sinfo"), "main*", "idle")
	node := strings.TrimSpace(d.slurm("sinfo", "-h", "-o", "%n"))
	d.slurm("scontrol", "update", "NodeName="+node, "State=DRAIN", "Reason=fan")
	d.want(d.slurm("sinfo", "-h", "-o", "%t"), "drain")
	d.slurm("scontrol", "update", "NodeName="+node, "State=RESUME")
	d.want(d.slurm("sinfo", "-h", "-o", "%t"), "idle")
}

// srun --pty is a shell on a GPU; Ctrl-\ leaves it, and it goes on.
func TestSrunPty(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	s := d.sitAt(filepath.Join(d.dir, "bin", "srun"), "--gpus=1", "--pty", "sh", "-i")
	s.see("$ ")
	s.write("stty size; tty | cut -c1-8; echo on $CUDA_VISIBLE_DEVICES\n")
	s.see("30 100")
	s.see("/dev/pts")
	s.see("on GPU-simulated-0")
	s.write("exit 7\n")
	if code := s.leaves(); code != 7 {
		t.Errorf("exit code %d, not the shell's 7\n%s", code, s.text.String())
	}
	s = d.sitAt(filepath.Join(d.dir, "bin", "srun"), "--pty", "sh", "-i")
	s.see("$ ")
	s.write("\x1c")
	s.see("job 2 continues")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d of a terminal that was left", code)
	}
	d.want(d.slurm("squeue", "-h", "-o", "%i %t"), "2 R")
	d.must("cancel", "2")
}

// What is piped into srun reaches the command, and nothing does with -i none.
func TestSrunInput(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	for args, want := range map[string]string{"cat": "one\ntwo\n", "-n2 -l cat": "0: one\n0: two\n",
		"-i none cat": ""} {
		cmd := patient(filepath.Join(d.dir, "bin", "srun"), append([]string{"-Q"}, strings.Fields(args)...)...)
		cmd.Dir, cmd.Env, cmd.Stdin = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket),
			strings.NewReader("one\ntwo\n")
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("srun %s: %v, %q; want %q", args, err, out, want)
		}
	}
}

// salloc waits for its GPUs, runs a command or a shell with them, and gives them back; inside, srun makes
// steps.
func TestSalloc(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	d.must("submit", "--gpus", "2", "--name", "first", "--", "sh", "-c", "until test -e go; do sleep 0.1; done")
	done := make(chan string, 1)
	go func() {
		cmd := patient(filepath.Join(d.dir, "bin", "salloc"), "--gpus=1", "-n2", "sh", "-c",
			"echo job $SLURM_JOB_ID on $CUDA_VISIBLE_DEVICES; srun -l sh -c 'echo rank $SLURM_PROCID'; exit 6")
		cmd.Dir, cmd.Env = d.dir,
			append(os.Environ(), "MUSTER_SOCKET="+d.socket, "PATH="+filepath.Join(d.dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		done <- string(out) + err.Error()
	}()
	d.eventually("the allocation to wait", func() bool {
		return strings.Contains(d.slurm("squeue", "-h", "-o", "%i %t"), "2 PD")
	})
	d.want(d.slurm("sprio", "-h", "-o", "%i %r"), "2 main")
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.want(<-done, "salloc: Pending job allocation 2", "salloc: Granted job allocation 2", "job 2 on GPU-simulated-",
		"0: rank 0", "1: rank 1",
		"salloc: Relinquishing job allocation 2", "exit status 6")
	s := d.sitAt(filepath.Join(d.dir, "bin", "salloc"), "--gpus=2", "sh", "-i")
	s.see("salloc: Granted job allocation 3")
	s.see("$ ")
	s.write("tty | cut -c1-8; echo on $CUDA_VISIBLE_DEVICES; exit 7\n")
	s.see("/dev/pts")
	s.see("on GPU-simulated-0,GPU-simulated-1")
	s.see("salloc: Relinquishing job allocation 3")
	if code := s.leaves(); code != 7 {
		t.Errorf("exit code %d, not the shell's 7\n%s", code, s.text.String())
	}
	d.want(d.slurm("salloc", "--no-shell", "--gpus=1"), "Granted job allocation 4")
	d.want(d.slurm("sstat", "-n", "-j", "4", "-o", "JobID"), "4.batch")
	cmd := exec.Command(filepath.Join(d.dir, "bin", "salloc"), "--gpus=2", "true")
	said, err := os.Create(filepath.Join(d.dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Env, cmd.Stderr = append(os.Environ(), "MUSTER_SOCKET="+d.socket), said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.eventually("another allocation to wait", func() bool {
		return strings.Contains(d.read("said"), "Pending job allocation 5") // it can be told to end
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	d.eventually("it to be cancelled, as nobody waits for it any more", func() bool {
		return d.slurm("squeue", "-h", "-o", "%i") == "4\n"
	})
	d.slurm("scancel", "4")
}

// The accounting of queues and users, under Slurm's names, from what the daemon decides by.
func TestSlurmAccounting(t *testing.T) {
	t.Parallel()
	d := withConfig(t, "2xH100-80GB",
		"queues: [{name: lab, shares: 3, children: [{name: vision, guarantee: 1, limit: 2}]}, {name: ops}]\n")
	d.start()
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	d.slurm("srun", "-A", "vision", "--gpus=2", "sleep", "1.5")
	me := strings.TrimSpace(d.slurm("sacct", "-nPX", "-o", "User"))
	var share []string
	for _, line := range strings.Split(d.slurm("sshare", "-nP"), "\n") {
		if strings.Contains(line, "vision|"+me) {
			share = strings.Split(line, "|")
		}
	}
	if len(share) != 7 || share[4] < "2" || share[5] != "1.000000" || share[6] != "1.000000" {
		t.Errorf("%q: the user's own line should say 3 or more GPU-seconds, all of the queue's", share)
	}
	d.want(d.slurm("sshare", "-nPl", "-A", "lab"), " lab||3|0.750000|")
	d.want(d.slurm("sacctmgr", "-nP", "show", "assoc", "format=account,user,share,grptres,parentname"), "lab||3||root",
		"vision||1|gres/gpu=2|lab", "vision|"+me+"|1||", "ops||1||root")
	d.want(d.slurm("sprio", "-w"), "FAIRSHARE", "10000")
	if out, code := d.try("slurm", "sacctmgr", "add", "account", "x"); code != 1 ||
		!strings.Contains(out, "are in the configuration of muster serve") {
		t.Errorf("%d %s", code, out)
	}
}

// sbatch --wait and salloc outlive a daemon that is killed and started again.
func TestSlurmWaitsOn(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	outs := make(chan string, 2)
	wait := func(name string, args ...string) {
		cmd := patient(filepath.Join(d.dir, "bin", name), args...)
		cmd.Dir, cmd.Env = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket)
		out, err := cmd.CombinedOutput()
		outs <- fmt.Sprint(name, ": ", string(out), err)
	}
	go wait("sbatch", "--wait", "--gpus=1", "--wrap", "until test -e go; do sleep 0.1; done; exit 3")
	d.eventually("the job to run", func() bool {
		return strings.Contains(d.slurm("squeue", "-h", "-o", "%i %t"), "1 R")
	})
	go wait("salloc", "--gpus=1", "echo", "granted at last")
	d.eventually("the allocation to wait", func() bool {
		return strings.Contains(d.slurm("squeue", "-h", "-o", "%i %t"), "2 PD")
	})
	time.Sleep(300 * time.Millisecond) // both wait at the daemon
	d.kill()
	d.start()
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	both := <-outs + "\n" + <-outs
	d.want(both, "Submitted batch job 1\nexit status 3", "granted at last", "Relinquishing job allocation 2\n<nil>")
}
