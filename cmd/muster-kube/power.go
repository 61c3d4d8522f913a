package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// programWait is how long what a program started may keep its output open after the program is told to end.
const programWait = 5 * time.Second

// switchNode runs suspend_program or resume_program with the name of a node, as Slurm does; what it
// says is told only if it fails.
func switchNode(ctx context.Context, program, node string) error {
	c := exec.CommandContext(ctx, program, node)
	c.WaitDelay = programWait
	c.Env = append(os.Environ(), "MUSTER_NODE="+node)
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	const most = 500
	out = bytes.TrimSpace(out)
	if len(out) > most {
		out = append(append([]byte(nil), out[:most]...), "..."...)
	}
	return fmt.Errorf("%s %s: %w: %s", program, node, err, out)
}
