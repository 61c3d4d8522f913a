//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A plan of muster mps plan is taken live by its command lines: each gpulet's job has its
// percentage of MPS, those of one GPU are together, and services that take turns are
// processes of one job. The control program is played.
func TestMPSPlanLive(t *testing.T) {
	t.Parallel()
	d := shares(t, "3xA100-80GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	t.Cleanup(func() {
		for gpu := range 3 {
			for _, name := range []string{"server", "nvidia-cuda-mps-control.pid"} {
				if pid := d.pidIn(gpu, name); pid > 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
	for name, text := range map[string]string{
		"slo.csv":    "service,rate,latency_ms\nchat,190,200\nvision,240,100\nrare,1,100\n",
		"chat.csv":   "percent,batch,processes,rate,seconds\n40,8,1,100,0.08\n60,8,1,130,0.061\n100,8,1,150,0.053\n",
		"vision.csv": "percent,batch,processes,rate,seconds\n40,4,1,100,0.04\n60,4,1,200,0.02\n100,4,1,210,0.019\n",
		"rare.csv":   "percent,batch,processes,rate,seconds\n40,1,1,70,0.014\n60,1,1,80,0.012\n100,1,1,100,0.01\n",
	} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"mps", "plan", "--slo", "slo.csv", "--measured", ".", "--sizes", "40,60", "--play", "0", "--start",
		stand(t, "mps-client") + " {service}"}
	var plan struct {
		GPUs    int
		Gpulets []struct {
			GPU, Percent int
			Turns        []struct{ Service string }
		}
	}
	if err := json.Unmarshal([]byte(d.must(append(args, "--json")...)), &plan); err != nil {
		t.Fatal(err)
	}
	if plan.GPUs < 2 || plan.GPUs > 3 {
		t.Fatalf("%+v", plan)
	}
	cmd := exec.Command("sh", "-ec", d.must(append(args, "--commands")...))
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket, "PATH="+filepath.Dir(d.bin)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	on, turns, cancel := map[int]string{}, 0, []string{"cancel"}
	for i, g := range plan.Gpulets {
		id := fmt.Sprint(i + 1)
		file := filepath.Join(d.dir, "muster-"+id+".out")
		cancel = append(cancel, id)
		var text string
		d.eventually("job "+id+" runs", func() bool {
			b, _ := os.ReadFile(file)
			text = string(b)
			return strings.Count(text, "CUDA_MPS_PIPE_DIRECTORY") == len(g.Turns)
		})
		turns = max(turns, len(g.Turns))
		if n := strings.Count(text, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d\n", g.Percent)); n != len(
			g.Turns) {
			t.Errorf("gpulet %+v:\n%s", g, text)
		}
		_, device, _ := strings.Cut(text, "CUDA_MPS_PIPE_DIRECTORY=")
		device, _, _ = strings.Cut(device, "\n")
		if on[g.GPU] == "" {
			on[g.GPU] = device
		} else if on[g.GPU] != device {
			t.Errorf("gpulet %+v is on %s, the other one of its GPU on %s", g, device, on[g.GPU])
		}
	}
	for a, one := range on {
		for b, other := range on {
			if a != b && one == other {
				t.Errorf("GPUs %d and %d of the plan are both on %s", a, b, one)
			}
		}
	}
	if turns < 2 {
		t.Errorf("no service takes turns: %+v", plan)
	}
	d.must(cancel...)
}

// A job ends as its service does, and one of several services as soon as one of them does,
// as one that failed; what starts a service may be several commands.
func TestMPSCommandsEnd(t *testing.T) {
	dir, write := writer(t)
	write("one.csv", "service,rate,latency_ms\na,1,100\n")
	write("two.csv", "service,rate,latency_ms\na,1,100\nb,1,100\n")
	for _, name := range []string{"a.csv", "b.csv"} {
		write(name, "percent,batch,processes,rate,seconds\n100,1,1,100,0.01\n")
	}
	for _, c := range []struct{ slo, start, want string }{
		{"one.csv", "cd /; (echo {service}; exit 3)", "a\n3\n"},
		{"two.csv", "cd /; test {service} = b && sleep 600", "143\n"}, // 128 and the signal
	} {
		lines, errw, err := muster(t, context.Background(), "mps", "plan", "--slo", filepath.Join(dir, c.slo),
			"--measured", dir, "--sizes", "100", "--start", c.start, "--commands")
		if err != nil {
			t.Fatal(err, errw)
		}
		out, err := os.Create(filepath.Join(dir, "out")) // not a pipe, which who goes on would keep open
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, "sh", "-c",
			`muster() { while [ "$1" != -- ]; do shift; done; shift; "$@"; }; `+lines+"\necho $?")
		cmd.Stdout, cmd.SysProcAttr = out, &syscall.SysProcAttr{Setpgid: true}
		err = cmd.Run()
		cancel()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = out.Close()
		if said, _ := os.ReadFile(out.Name()); err != nil || string(said) != c.want {
			t.Errorf("%s gives %q %v, want %q", lines, said, err, c.want)
		}
	}
}
