package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/pflag"
)

// runProfiles are the files that say where processor time and memory of a command went,
// for go tool pprof.
type runProfiles struct{ cpu, memory string }

func (p *runProfiles) register(fl *pflag.FlagSet) {
	fl.StringVar(&p.cpu, "cpuprofile", "", "write to this file where processor time went (go tool pprof FILE)")
	fl.StringVar(&p.memory, "memprofile", "",
		"write to this file where memory was allocated, and what is left of it at the end (go tool pprof -sample_index=alloc_space FILE)")
}

// during runs a command and writes the profiles that are asked for, also if it fails:
// what it did until then is in them.
func (p *runProfiles) during(run func() error) (err error) {
	if p.cpu != "" && p.cpu == p.memory {
		return usage(fmt.Errorf("--cpuprofile and --memprofile: give two files, not %s for both", p.cpu))
	}
	if p.memory != "" { // better now than when hours are over
		if _, err := os.Stat(filepath.Dir(p.memory)); err != nil {
			return usage(named("--memprofile", err))
		}
	}
	if p.cpu != "" {
		file, failed := os.Create(p.cpu)
		if failed != nil {
			return usage(named("--cpuprofile", failed))
		}
		defer func() { err = errors.Join(err, named("--cpuprofile", file.Close())) }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return named("--cpuprofile", err)
		}
	}
	err = run()
	if p.cpu != "" {
		pprof.StopCPUProfile()
	}
	if p.memory != "" {
		runtime.GC() // what is left is counted at collections
		err = errors.Join(err,
			named("--memprofile",
				writeFile(p.memory, func(w io.Writer) error { return pprof.Lookup("allocs").WriteTo(w, 0) })))
	}
	return err
}

func named(flag string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
