//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/account"
)

// demo keeps a small team's worth of work on a daemon, so that there is
// something to look at: real, short processes that compute nothing.
type demo struct {
	m     *local.Machine
	who   account.User
	gpus  int
	dir   string
	rand  *rand.Rand
	turns int
}

const (
	demoGPUs = "sim:8xH100-80GB"
	// demoEvery is how often a job arrives, on average.
	demoEvery = 4 * time.Second
	// demoWaiting is how many jobs may wait before no more are submitted.
	demoWaiting = 9
)

// demoQueues divide the GPUs of a small team: half and a quarter are guaranteed.
func demoQueues(gpus int) []cluster.Queue {
	n := int64(gpus) * cluster.Whole
	return []cluster.Queue{
		{Name: "research", Guarantee: n / 2, Limit: cluster.Unlimited, Lend: cluster.Unlimited},
		{Name: "vision", Guarantee: n / 4, Limit: n * 3 / 4, Lend: cluster.Unlimited},
		{Name: "sweeps", Limit: cluster.Unlimited, Lend: cluster.Unlimited},
	}
}

// demoScript works for so many seconds, writes a log as trainings do, reports
// progress, saves when it is asked to, and goes on from there.
const demoScript = `#!/bin/sh
total=$1 fail=$2 i=0
[ -e "$MUSTER_CHECKPOINT_DIR/step" ] && i=$(cat "$MUSTER_CHECKPOINT_DIR/step") && echo "restored step $i (start $MUSTER_RESTART_COUNT)"
save() { echo $i > "$MUSTER_CHECKPOINT_DIR/step"; echo "saved step $i"; exit 0; }
trap save USR1
echo "on GPUs ${CUDA_VISIBLE_DEVICES:-none}"
while [ $i -lt $total ]; do
	i=$((i + 1))
	echo "step $i/$total  loss $((9000 / (i + 30))).$((i * 37 % 90 + 10))  lr 3e-4"
	echo "{\"step\": $i, \"steps\": $total, \"samples_per_s\": $((180 + i * 13 % 40))}" >> "$MUSTER_PROGRESS"
	if [ $i -eq $fail ]; then echo "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB" >&2; exit 1; fi
	sleep 1 & wait $!
done
echo done
`

var demoNames = map[string][]string{
	"research": {"llama-8b-pretrain", "moe-ablation", "rlhf-reward", "eval-suite", "long-context"},
	"vision":   {"vit-l-finetune", "segment-aerial", "detector-night", "depth-v2"},
	"sweeps":   {"sweep-lr", "sweep-width", "sweep-augment", "probe"},
}

// next makes up a job. No real GPU is computed on: the devices are simulated.
func (d *demo) next() *api.Submission {
	d.turns++
	queue := []string{"research", "vision", "vision", "sweeps", "sweeps"}[d.rand.IntN(5)]
	names := demoNames[queue]
	s := &api.Submission{Name: fmt.Sprintf("%s-%d", names[d.rand.IntN(len(names))], d.turns), Queue: queue, Script: demoScript, ScriptName: "train.sh",
		Dir: d.dir, GPUs: 1 << d.rand.IntN(2), Comment: "made up by muster serve --demo"}
	seconds, fail := 15+d.rand.IntN(40), 0
	switch {
	case queue == "sweeps":
		s.GPUs, seconds = 1, 8+d.rand.IntN(25)
		if d.turns%3 == 0 {
			s.Tier = "best-effort"
		}
		if d.rand.IntN(2) == 0 {
			s.Share = 500
		}
	case d.turns%11 == 0: // somebody needs something now
		s.Tier, s.GPUs, seconds = "critical", max(1, d.gpus/4), 10
	case d.turns%7 == 0:
		s.GPUs = max(1, d.gpus/2)
	}
	if d.rand.IntN(8) == 0 {
		fail = 3 + d.rand.IntN(seconds-3)
	}
	s.GPUs = min(s.GPUs, d.gpus)
	s.Args = []string{fmt.Sprint(seconds), fmt.Sprint(fail)}
	s.Limit = api.Duration(time.Duration(seconds*3) * time.Second)
	s.Estimate = api.Duration(time.Duration(seconds) * time.Second)
	return s
}

// run submits jobs until the context ends; those that run then end by themselves.
func (d *demo) run(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(demoEvery)
	defer t.Stop()
	for n := 0; ; n++ {
		if n < 6 || d.m.Overview().Counts[api.StatePending] < demoWaiting {
			s := d.next()
			if _, err := d.m.Submit(ctx, d.who, s, ""); err != nil && ctx.Err() == nil {
				log.Warn("the demo could not submit a job", "error", err)
			}
		}
		if n < 12 { // begin with a full machine
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// demoDefaults gives a demo simulated GPUs and a state of its own, unless it is
// told otherwise: made-up jobs are not to be among those of the team.
func (f *serveFlags) demoDefaults(c *cobra.Command, conf *config.Serve) {
	if f.gpus == "" {
		conf.GPUs = demoGPUs
	}
	if !c.Flags().Changed("state") {
		conf.State += "-demo"
	}
}

// startDemo begins to submit jobs, if they are wanted, as the user who runs the
// daemon.
func (f *serveFlags) startDemo(ctx context.Context, m *local.Machine, gpus int, dir string, log *slog.Logger) {
	if !f.demo {
		return
	}
	u, err := user.Current()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		log.Warn("there is no demo", "error", err)
		return
	}
	log.Info("submitting made-up jobs (--demo); muster dashboard shows them")
	d := &demo{m: m, who: account.UserNamed(u.Username), gpus: gpus, dir: dir, rand: rand.New(rand.NewPCG(1, 2))}
	d.who.Trusted = true // it is the daemon's own user
	go d.run(ctx, log)
}
