package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/plain"
)

// Commands are the names of the commands that Main runs.
var Commands = []string{"sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "sprio", "squeue",
	"srun", "sshare", "sstat"}

// version is the Slurm version whose man pages and formats are followed.
const version = "slurm 22.05.8"

// command is one run of one of the commands.
type command struct {
	name        string
	args, env   []string
	in          io.Reader
	out, errOut io.Writer
	svc         Service
}

// Main runs one of the commands and returns its exit status.
func Main(name string, args, env []string, stdin io.Reader, stdout, stderr io.Writer, svc Service) int {
	if slices.ContainsFunc(args, func(a string) bool { return a == "--json" || strings.HasPrefix(a, "--json=") }) {
		stdout = plain.JSON(stdout)
	} else {
		svc = shown{svc}
	}
	c := &command{name, args, env, stdin, stdout, stderr, svc}
	run := map[string]func() (int, error){
		"sacct": c.sacct, "sacctmgr": c.sacctmgr, "salloc": c.salloc, "sbatch": c.sbatch, "scancel": c.scancel,
		"scontrol": c.scontrol,
		"sinfo":    c.sinfo, "sprio": c.sprio, "squeue": c.squeue, "srun": c.srun, "sshare": c.sshare,
		"sstat": c.sstat}[name]
	if run == nil {
		c.fail(cluster.Unknown("Slurm command", name, Commands))
		return 2
	}
	code, err := run()
	if err != nil {
		c.fail(err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// fail prints an error in the format of Slurm's commands, so that scripts that search for "sbatch: error:" find
// it.
func (c *command) fail(err error) {
	var bad argError
	if errors.As(err, &bad) {
		c.errorf("%s: %s\nTry \"%s --help\" for more information\n", c.name, bad.text, c.name)
		return
	}
	c.errorf("%s: error: %s\n", c.name, plain.Lines(err.Error()))
}

func (c *command) errorf(format string, args ...any) { fmt.Fprintf(c.errOut, format, args...) }

func (c *command) printf(format string, args ...any) { fmt.Fprintf(c.out, format, args...) }

func (c *command) warn(warnings []string) {
	for _, w := range warnings {
		c.errorf("%s: warning: %s\n", c.name, w)
	}
}

// help prints the options of a command, from its table.
func (c *command) help(usage string, table []option) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Usage: %s\n\n", usage)
	for _, o := range table {
		short := "    "
		if o.short != 0 {
			short = "-" + string(rune(o.short)) + ", "
		}
		arg := map[argument]string{flag: "", needs: "=VALUE", optional: "[=VALUE]"}[o.arg]
		note := map[use]string{used: "", warned: "ignored: " + o.note, refused: "refused: " + o.note}[o.use]
		fmt.Fprintf(&b, "  %s%-28s %s\n", short, "--"+o.name+arg, note)
	}
	b.WriteString("\nThe options mean what Slurm's manual says; docs/guide/slurm.md lists the differences.\n")
	c.printf("%s", b.Bytes())
}

// machine gathers what a submission depends on. What most submissions do not need is requested only when needed.
func (c *command) machine() (machine, error) {
	dir, err := os.Getwd()
	return machine{now: c.svc.Now(), nodes: sync.OnceValues(c.svc.Nodes), parts: sync.OnceValues(c.svc.Partitions),
		queues: c.svc.Queues, jobs: c.recent, job: c.svc.Job, env: c.env, dir: dir}, err
}

// recent are the present jobs and those of the last day.
func (c *command) recent() ([]api.Job, error) {
	now := c.svc.Now()
	return c.svc.History(now.AddDate(0, 0, -1), now)
}

// umask is the caller's, read without changing it. It is among the first lines of the file, which is read
// without the runtime's poller, whose preparation costs time.
func umask() string {
	fd, err := syscall.Open("/proc/self/status", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	text := make([]byte, 256)
	n, err := syscall.Read(fd, text)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text[:n]), "\nUmask:")
	line, _, whole := strings.Cut(rest, "\n")
	if !whole {
		return ""
	}
	return strings.TrimSpace(line)
}

// says is an error in Slurm's own words, which people search for.
func says(format string, args ...any) error { return fmt.Errorf(format, args...) }
