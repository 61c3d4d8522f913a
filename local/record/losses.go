//go:build linux

package record

import (
	"fmt"
	"time"
)

const (
	mostLosses  = 5               // runs in a row that lost their shim, after which a job has failed
	longRun     = time.Minute     // a run that lasted so long begins the count again
	mostBackoff = 8 * time.Second // before the next run
)

// Losses counts the runs in a row that ended because their shim was killed.
type Losses int

// Book adds a run that lasted so long. It returns how long the job is to wait
// before the next one; 0: there shall be none.
func (l *Losses) Book(ran time.Duration) (wait time.Duration) {
	if ran >= longRun {
		*l = 0
	}
	if *l++; *l >= mostLosses {
		return 0
	}
	return min(time.Second<<(*l-1), mostBackoff)
}

// Text says why there shall be no further run.
func (l *Losses) Text() string {
	return fmt.Sprintf("the process that watched over it was killed in %d runs in a row, each shorter than %v", *l,
		longRun)
}
