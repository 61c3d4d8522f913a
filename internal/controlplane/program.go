package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// program is a program of the control plane. It may be killed and started again.
type program struct {
	name string
	args []string
	proc *os.Process
	over chan struct{} // closed when the process ended
	told *atomic.Bool  // the process was told to end
}

// run starts a program that is stopped with the test, the last one first.
func (p *Plane) run(name string, args ...string) {
	p.t.Helper()
	g := &program{name: name, args: args}
	p.programs[name] = g
	p.launch(g)
	p.t.Cleanup(func() {
		g.told.Store(true)
		_ = g.proc.Signal(syscall.SIGTERM)
		t := time.AfterFunc(10*time.Second, func() { _ = g.proc.Kill() })
		<-g.over
		t.Stop()
	})
}

// launch starts the process of a program.
func (p *Plane) launch(g *program) {
	p.t.Helper()
	out, err := os.OpenFile(p.path(g.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	c := exec.Command(filepath.Join(p.bin, g.name), g.args...)
	c.Stdout, c.Stderr, c.Dir = out, out, p.dir
	c.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=2GiB", // memory is cheaper than time
		"GOMAXPROCS=1", // many of these share two cores: what waits for work on the other one would take it from others
		"HOME="+p.dir)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that dies leaves nothing behind
	if err := c.Start(); err != nil {
		p.t.Fatalf("%s: %v", g.name, err)
	}
	over, told, name := make(chan struct{}), &atomic.Bool{}, g.name
	g.proc, g.over, g.told = c.Process, over, told
	go func() {
		_ = c.Wait()
		_ = out.Close()
		if !told.Load() {
			p.ended.Store(&name)
		}
		close(over)
	}()
}

// Kill kills a program (etcd, kube-apiserver, kwok, ...) with SIGKILL and returns when it is gone.
func (p *Plane) Kill(name string) {
	p.t.Helper()
	g := p.programs[name]
	if g == nil {
		p.t.Fatalf("%s was never started", name)
	}
	g.told.Store(true)
	_ = g.proc.Kill()
	<-g.over
}

// Revive starts a killed program again with the same arguments, port and files, and returns when the API server
// answers.
func (p *Plane) Revive(name string) {
	p.t.Helper()
	p.launch(p.programs[name])
	p.answers()
}
