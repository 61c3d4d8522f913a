//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// slurm runs one of the installed commands.
func (d *daemon) slurm(name string, args ...string) string {
	d.t.Helper()
	bin := filepath.Join(d.dir, "bin")
	cmd := exec.Command("timeout", append([]string{"60", filepath.Join(bin, name)}, args...)...)
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
	if out := d.slurm("sbatch", "--parsable", "--dependency=afterok:1", "--wrap", "cat out-1.txt > copy"); strings.TrimSpace(out) != "2" {
		t.Errorf("sbatch --parsable says %q", out)
	}
	d.want(d.slurm("squeue"), "JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)", "(JobHeldUser)", "(Dependency)")
	d.slurm("scontrol", "update", "JobId=1", "TimeLimit=5", "JobName=renamed")
	d.want(d.slurm("scontrol", "show", "job", "1"), "JobName=renamed", "TimeLimit=00:05:00")
	d.slurm("scontrol", "release", "1")
	d.must("wait", "2")
	text, err := os.ReadFile(filepath.Join(d.dir, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	d.want(string(text), "gpus 0,1 of job 1", "rank 0 of 2", "rank 1 of 2")
	d.want(d.slurm("sacct", "-n", "-X", "-o", "JobID,JobName,State,ExitCode", "-P"), "1|renamed|COMPLETED|0:0", "2|wrap|COMPLETED|0:0")
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
		t.Errorf("exit code %d, not the shell's 7\n%s", code, s.shown())
	}
	s = d.sitAt(filepath.Join(d.dir, "bin", "srun"), "--pty", "sh", "-i")
	s.see("$ ")
	s.write("\x1c")
	s.see("job 2 goes on")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d of a terminal that was left", code)
	}
	d.want(d.slurm("squeue", "-h", "-o", "%i %t"), "2 R")
	d.must("cancel", "2")
}

// What is piped into srun reaches the command, and nothing does with -i none.
func TestSrunInput(t *testing.T) {
	d := startDaemon(t, "1xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	for args, want := range map[string]string{"cat": "one\ntwo\n", "-n2 -l cat": "0: one\n0: two\n", "-i none cat": ""} {
		cmd := exec.Command("timeout", append([]string{"60", filepath.Join(d.dir, "bin", "srun"), "-Q"}, strings.Fields(args)...)...)
		cmd.Dir, cmd.Env, cmd.Stdin = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket), strings.NewReader("one\ntwo\n")
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("srun %s: %v, %q; want %q", args, err, out, want)
		}
	}
}
