//go:build linux

// Command muster-slurm is Slurm's commands on Muster and nothing else: called
// by the name of one of them (muster slurm install makes the links), or with
// the name as its first argument. muster can do the same; but scripts call
// sbatch and squeue by the thousand, and this program starts in a quarter of
// the time.
//
// It ends too soon to gain from more cores, and asks nobody how many it might have.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/slurm/remote"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if len(args) == 1 && args[0] == "--build" && !slices.Contains(slurm.Commands, name) { // muster asks whether we belong together
		fmt.Println(version())
		return
	}
	if !slices.Contains(slurm.Commands, name) && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if !slices.Contains(slurm.Commands, name) {
		fmt.Fprintf(os.Stderr, "muster-slurm: call it by the name of one of Slurm's commands, or with it as the first argument: %s\n", strings.Join(slurm.Commands, " "))
		os.Exit(2)
	}
	exe, err := os.Executable()
	if err != nil {
		exe = "muster-slurm"
	}
	debug.SetGCPercent(400) // it ends soon: memory is cheaper than looking for some
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := remote.Main(ctx, name, args, []string{exe, "srun"}, time.Now)
	stop()
	os.Exit(code)
}

// version is that of the module this program was built from, as muster knows
// its own.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}
