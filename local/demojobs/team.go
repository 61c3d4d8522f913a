// Package demojobs makes up the jobs of a small team, so that there is something to look at: real, short processes that
// compute nothing.
package demojobs

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// Team submits jobs on a machine with so many GPUs. The same calls make up the same jobs.
type Team struct {
	gpus  int
	dir   string // where the jobs run
	rand  *rand.Rand
	turns int
}

// NewTeam makes one.
func NewTeam(gpus int, dir string) *Team {
	return &Team{gpus: gpus, dir: dir, rand: rand.New(rand.NewPCG(1, 2))}
}

// Queues divide the GPUs of a small team: half and a quarter are guaranteed.
func Queues(gpus int) []cluster.Queue {
	n := int64(gpus) * cluster.Whole
	return []cluster.Queue{
		{Name: "research", Guarantee: n / 2, Limit: cluster.Unlimited, Lend: cluster.Unlimited},
		{Name: "vision", Guarantee: n / 4, Limit: n * 3 / 4, Lend: cluster.Unlimited},
		{Name: "sweeps", Limit: cluster.Unlimited, Lend: cluster.Unlimited},
	}
}

// script works for so many seconds, writes a log as trainings do, reports
// progress, saves when it is asked to, and goes on from there.
const script = `#!/bin/sh
total=$1 fail=$2 i=0
saved=$MUSTER_CHECKPOINT_DIR/step
[ -e "$saved" ] && i=$(cat "$saved") && echo "restored step $i (start $MUSTER_RESTART_COUNT)"
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

var names = map[string][]string{
	"research": {"llama-8b-pretrain", "moe-ablation", "rlhf-reward", "eval-suite", "long-context"},
	"vision":   {"vit-l-finetune", "segment-aerial", "detector-night", "depth-v2"},
	"sweeps":   {"sweep-lr", "sweep-width", "sweep-augment", "probe"},
}

// Next makes up a job. No real GPU is computed on: the devices are simulated.
func (d *Team) Next() *ask.Submission {
	d.turns++
	queue := []string{"research", "vision", "vision", "sweeps", "sweeps"}[d.rand.IntN(5)]
	known := names[queue]
	name := fmt.Sprintf("%s-%d", known[d.rand.IntN(len(known))], d.turns)
	s := &ask.Submission{Name: name, Queue: queue, Script: script, ScriptName: "train.sh",
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
	case d.turns%11 == 0: // a user needs something now
		s.Tier, s.GPUs, seconds = "critical", max(1, d.gpus/4), 10
	case d.turns%7 == 0:
		s.GPUs = max(1, d.gpus/2)
	}
	if d.rand.IntN(8) == 0 {
		fail = 3 + d.rand.IntN(seconds-3)
	}
	s.GPUs = min(s.GPUs, d.gpus)
	s.Args = []string{fmt.Sprint(seconds), fmt.Sprint(fail)}
	s.Limit = ask.Duration(time.Duration(seconds*3) * time.Second)
	s.Estimate = ask.Duration(time.Duration(seconds) * time.Second)
	return s
}
