//go:build linux

// Command muster-shim owns one task of muster serve, which finds it beside
// itself. muster can do the same and does where this program is missing; but
// muster is large, and one that holds nothing else starts in a fifth of the time.
//
// It runs on one core and does not look up how many there are.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/local/shim"
)

func main() {
	switch a := os.Args[1:]; {
	case len(a) == 2 && a[0] == shim.Verb:
		os.Exit(shim.Main(a[1], time.Now))
	case len(a) == 1 && a[0] == shim.BuildVerb:
		fmt.Println(shim.Build())
	case len(a) == 1 && a[0] == "--version":
		fmt.Println("muster-shim", version.Read())
	default:
		fmt.Fprintln(os.Stderr,
			"muster-shim: muster serve starts this program, one for each task; it is of no use by itself")
		os.Exit(2)
	}
}
