package kube

import (
	"context"
	"fmt"

	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/setaside"
)

// What schedulers failed at inside (package kube/setaside).
type (
	// Failure is that a scheduler failed inside while it decided: Run returns it.
	Failure = setaside.Failure
	// Failures are what the schedulers before this one failed at.
	Failures = setaside.Failures
)

// drive steps the engine until it has to be renewed. A failure inside is an error that says at which gangs.
func (d *Driver) drive(ctx context.Context) (err error) {
	defer func() {
		x := recover()
		if x == nil {
			return
		}
		d.setAside.Failed("decided", x)
		f := &Failure{Cause: x}
		for i := range d.step {
			g := d.byID[d.step[i].Job]
			if submits(d.step[i]) && g != nil && len(g.InJob) > 0 {
				f.Culprits = append(f.Culprits,
					setaside.Culprit{Pod: string(g.InJob[0]), Name: g.Name, Text: fmt.Sprint(x)})
			}
		}
		err = f
	}()
	return driver.Run(ctx, d.eng, d, d)
}

func submits(ev engine.Event) bool { return ev.Type == engine.Submitted }
