package shared

import (
	"flag"
	"strconv"
)

// Beside has so many tests of a package run at once, unless go test is told otherwise: where most of them wait for
// processes, the number of processors says nothing of how many. It is for TestMain.
func Beside(tests int) {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if told {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err)
	}
}
