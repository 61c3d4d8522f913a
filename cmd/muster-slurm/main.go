//go:build linux

// Command muster-slurm is Slurm's commands on Muster and nothing else: called
// by the name of one of them (muster slurm install makes the links), or with
// the name as its first argument. muster can do the same; but scripts call
// sbatch and squeue by the thousand, and this program starts in a quarter of
// the time.
//
// It ends too soon to gain from more cores, and does not look up how many there are.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/slurm/remote"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	// muster asks whether we belong together
	if len(args) == 1 && args[0] == "--build" && !slices.Contains(slurm.Commands, name) {
		fmt.Println(version.Build())
		return
	}
	if len(args) == 1 && args[0] == "--version" && !slices.Contains(slurm.Commands, name) {
		fmt.Println("muster-slurm", version.Read())
		return
	}
	if !slices.Contains(slurm.Commands, name) && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if !slices.Contains(slurm.Commands, name) {
		fmt.Fprintf(os.Stderr,
			"muster-slurm: call it by the name of one of Slurm's commands, or with it as the first argument: %s\n",
			strings.Join(slurm.Commands, " "))
		os.Exit(2)
	}
	exe, err := os.Executable()
	if err != nil {
		exe = "muster-slurm"
	}
	server := client.Connect()
	if errors.Is(server.Err(), client.ErrNoTCP) {
		os.Exit(leave(filepath.Join(filepath.Dir(exe), "muster"), name, args))
	}
	ctx, stop := context.Background(), func() {}
	if name != "sbatch" { // it has nothing to give back, and ends too soon to need memory again
		debug.SetGCPercent(400) // memory is cheaper than looking for some
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	code := remote.Main(ctx, server, name, args, []string{exe, "srun"}, time.Now)
	stop()
	os.Exit(code)
}

// leave leaves a command to muster, which speaks with servers over TCP: what that takes would slow every start
// of this program down. It returns only if it cannot.
func leave(muster, name string, args []string) int {
	err := syscall.Exec(muster, append([]string{name}, args...), os.Environ())
	fmt.Fprintf(os.Stderr,
		"%s: error: the server is meant to be reached over TCP (MUSTER_HOST, muster login), which muster-slurm leaves to %s: %v; "+
			"put it there, or name the socket of a daemon of this machine in MUSTER_SOCKET\n", name, muster, err)
	return 1
}
