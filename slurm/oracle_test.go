package slurm

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// oracle is a real Slurm on this machine: its own ports and directories, one
// node "box" with 64 CPUs and 8 GPUs that are empty files, two partitions.
type oracle struct {
	t   testing.TB
	dir string // short: a socket's path has at most 108 characters
	env []string
}

const oracleConf = `ClusterName=oracle
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
SlurmdPort=%[3]d
SlurmUser=%[4]s
SlurmdUser=%[4]s
AuthType=auth/munge
AuthInfo=socket=%[5]s/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=%[5]s/state
SlurmdSpoolDir=%[5]s/spool
SlurmctldPidFile=%[5]s/ctld.pid
SlurmdPidFile=%[5]s/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
MaxJobCount=120000
MaxArraySize=100001
KillWait=2
DefMemPerNode=64
NodeName=box NodeHostname=%[1]s NodeAddr=127.0.0.1 CPUs=64 Sockets=1 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=20000 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=gpu Nodes=box Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=box MaxTime=30:00 DefaultTime=10:00 State=UP
`

// startOracle starts a Slurm, or skips; with CI=true its absence is a failure.
func startOracle(t testing.TB) *oracle {
	t.Helper()
	if testing.Short() {
		t.Skip("a real Slurm takes some seconds")
	}
	for _, p := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol"} {
		if _, err := lookProgram(p); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v: scripts/install-test-deps.sh installs it", err)
			}
			t.Skipf("%v: nothing is compared with a real Slurm; scripts/install-test-deps.sh installs it", err)
		}
	}
	dir, err := os.MkdirTemp("", "orc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &oracle{t: t, dir: dir, env: append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf")}
	o.write()
	o.start("munged", "-F", "-f", "--key-file="+dir+"/key", "--socket="+dir+"/munge.socket",
		"--pid-file="+dir+"/munge.pid", "--log-file="+dir+"/munge.log", "--seed-file="+dir+"/seed")
	o.until("munged", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil })
	o.start("slurmctld", "-D", "-f", dir+"/slurm.conf")
	o.start("slurmd", "-D", "-f", dir+"/slurm.conf", "-N", "box")
	o.until("the node to be idle", func() bool {
		_, out, _ := o.run("", nil, "sinfo", "-h", "-p", "gpu", "-o", "%t")
		return out == "idle\n"
	})
	t.Cleanup(func() {
		o.run("", nil, "scancel", "-u", me(t)) // otherwise their steps would outlive the daemons
		for i := 0; i < 100; i++ {
			if _, out, _ := o.run("", nil, "squeue", "-h"); out == "" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return o
}

// lookProgram also searches the folders of daemons, which a user's PATH may lack.
func lookProgram(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

func me(t testing.TB) string {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

func (o *oracle) write() {
	o.t.Helper()
	host, err := os.Hostname()
	if err != nil {
		o.t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 1024)
	rand.Read(key)
	gpus := "Name=gpu Type=h100 File=" + o.dir + "/gpu[0-7]\n"
	files := map[string]string{"key": string(key), "gres.conf": gpus,
		"slurm.conf": fmt.Sprintf(oracleConf, host, freePort(o.t), freePort(o.t), me(o.t), o.dir)}
	for i := range 8 {
		files[fmt.Sprintf("gpu%d", i)] = "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	for _, d := range []string{"state", "spool", "work"} {
		if err := os.Mkdir(filepath.Join(o.dir, d), 0o755); err != nil {
			o.t.Fatal(err)
		}
	}
	if err := os.Chmod(o.dir, 0o755); err != nil {
		o.t.Fatal(err)
	}
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start runs a daemon in a process group of its own until the test ends.
func (o *oracle) start(name string, args ...string) {
	o.t.Helper()
	path, err := lookProgram(name)
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	log, err := os.Create(filepath.Join(o.dir, name+".out"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = log, log, o.env, o.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	o.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of the group
		<-ended
	})
}

// until waits for something, and shows the daemons' logs if it never comes.
func (o *oracle) until(what string, ok func() bool) {
	o.t.Helper()
	for i := 0; i < 600; i++ {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, n := range []string{"munged", "slurmctld", "slurmd"} {
		text, _ := os.ReadFile(filepath.Join(o.dir, n+".out"))
		o.t.Logf("%s:\n%s", n, text[max(0, len(text)-2000):])
	}
	o.t.Fatalf("waited in vain for %s", what)
}

// run runs a command of the real Slurm in the working directory.
func (o *oracle) run(stdin string, env []string, words ...string) (code int, out, errs string) {
	cmd := exec.Command(words[0], words[1:]...)
	var so, se bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &so, &se
	cmd.Dir, cmd.Env = filepath.Join(o.dir, "work"), append(o.env, env...)
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		o.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), so.String(), se.String()
}
