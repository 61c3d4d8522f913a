package results

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// cruxJobs draws the workload of Crux' trace simulation, for so many GPUs.
const cruxJobs = "jobs=%d,load=0.75,gpus=%d,seed=3,durations=lognormal:4h:1.4,max=7d," +
	"gangs=1:40/2:8/4:8/8:16/16:10/32:8/64:6/128:3,arrivals=diurnal," +
	"models=vgg16:1/bert-large-uncased:1/resnet50:1/gpt2-xl:1/llama-2-7b:1"

// port is the rate of a network card for each GPU.
const port = 100e9

// fabricCase is a network of Crux' trace simulation, by its oversubscription, and how many jobs are replayed on it.
type fabricCase struct {
	name, published string
	jobs            int
	spec            func(traces string, over int64) (*cluster.Spec, error)
}

var fabricCases = []fabricCase{
	{"two layers: 173 ToR, 16 aggregation", "+13 to +23 %", 5000, func(_ string, over int64) (*cluster.Spec, error) {
		return closOf(network.Clos{NodesPerLeaf: 2, Cards: 4, CardRate: 2 * port, Spines: 16,
			SpineRate: port / over}), nil
	}},
	{"three layers, double-sided: 6 ToR, 12 aggregation, 32 core", "+4 to +7 %", 5000,
		func(_ string, over int64) (*cluster.Spec, error) {
			up := int64(116*4*port/2) / over
			return closOf(network.Clos{NodesPerLeaf: 116, Cards: 2, CardRate: 4 * port, Rails: true, Planes: true,
				Spines: 2, SpineRate: up, LeavesPerPod: 1, Cores: 16, CoreRate: up / 16}), nil
		}},
	{"three layers, recorded: 847 nodes, 119 ToR, 3 pods", "", 400, recorded},
}

func host(name string) cluster.Node { return cluster.Node{Name: name, Model: "A100-80GB", GPUs: 8} }

// closOf is 346 nodes of 8 GPUs on a Clos network.
func closOf(c network.Clos) *cluster.Spec {
	spec := &cluster.Spec{Network: &cluster.Network{Classes: 8, Models: network.Models()}}
	for i := range 346 {
		name := fmt.Sprintf("n%d", i+1)
		spec.Nodes, c.Nodes = append(spec.Nodes, host(name)), append(c.Nodes, name)
	}
	spec.Network.Links = c.Links()
	return spec
}

// recorded is the 847 hosts of which the places were published with Crux. How many aggregation and core switches there
// are, and what links carry, is not recorded.
func recorded(traces string, over int64) (*cluster.Spec, error) {
	const up, leaves, cores = 8 * 8 * port / 1e9, 48, 16 // of the largest leaf switch, in Gbit/s; of the largest pod
	text := fmt.Sprintf(`nodes: [{name: "*", model: A100-80GB, gpus: 8}]
network:
  classes: 8
  topology: lingjun2023_topo.csv
  clos: {cards: 4, card_rate: 200Gbps, spines: 16, oversubscription: %d, cores: %d, core_rate: %dGbps}
`, over, cores, leaves*int64(up)/16/cores/over)
	return config.Read(filepath.Join(traces, "topology", "cluster.yaml"), strings.NewReader(text))
}

// cruxWorkload draws jobs for so many GPUs.
func cruxWorkload(jobs, gpus int) (*trace.Workload, error) {
	draw, err := trace.ParseSynth(fmt.Sprintf(cruxJobs, jobs, gpus))
	if err != nil {
		return nil, err
	}
	return trace.Synth(draw)
}

// cruxSetup is how jobs are replayed under a traffic policy.
func cruxSetup(name string) (sim.Setup, error) {
	setup := sim.Setup{Policy: "fifo", Placer: "best-fit", Traffic: name}
	return setup, setup.SetBackfill("easy")
}

// fabrics replays a part of the jobs, 1 or less, under every traffic policy on networks of Crux' trace simulation.
func (t *Table) fabrics(ctx context.Context, traces string, cases []fabricCase, part float64) error {
	names := traffic.Names()
	s := Section{Title: "Crux' trace simulation", About: "346 nodes with 2,768 GPUs, or the 847 nodes whose places in the network were published with Crux; fifo with EASY backfilling, best-fit. A cell is the part of the GPU time that jobs hold in which they compute, which is GPU utilisation as Crux counts it, and below it is the mean JCT in hours. Published: what Crux gains over Sincronia, TACCL* and CASSINI; beside it what `crux` gains here over `sincronia` and `cassini`. " +
		"Crux' workload and the rates of its links are not public. Here jobs are drawn by `muster trace synth` and run until their work is done: 1 to 128 GPUs, 4 hours in the median (lognormal, sigma 1.4, at most 7 days), arrivals in a daily cycle at a load of 0.75, five models (VGG-16, BERT large, ResNet-50, GPT-2 XL, Llama 2 7B) with their built-in traffic. " +
		"A node has 8 GPUs and 800 Gbit/s: on two layers and on the recorded ones 4 cards, else 2; oversubscription is between ToR and aggregation. Of the recorded network is known on which ToR switch each node is (at most 8 on one) and in which of three pods that is; assumed are the GPUs and cards of a node, 16 aggregation switches in each pod and 16 cores that join them, and as much upward from aggregation as comes from below. It has 400 jobs, as the model of its many links is slow. Only `crux` and `muster` choose paths. On two layers that is all of the gain: of 16 paths there is always one that is free, so nothing is left for classes, and `muster` is as good as `crux`; `ecmp`, which spreads each pair of ranks over four paths, has nearly as much, at 1:1 a little more. The gain is larger than published where the other policies leave each pair of ranks on one path, by the switches' hash, and as a link upward is slower than a card (100, 50 and 25 Gbit/s against 200). " +
		"On three layers six ToR switches have so wide links upward (23 Tbit/s at 1:1) that this workload hardly meets on them, and there is little to gain; at 4:1 `crux` loses a little by its classes to no treatment at all. On the recorded network few of these jobs slow each other down at 1:1 and 2:1, and `crux` loses a little there, too; at 4:1 it gains about what was published for three layers, 4 to 7 %.",
		Head: slices.Concat([]string{"network", "jobs", "oversubscription"}, names,
			[]string{"published", "`crux` over `sincronia`", "over `cassini`"})}
	for _, c := range cases {
		jobs := int(part * float64(c.jobs))
		for _, over := range []int64{1, 2, 4} {
			spec, err := c.spec(traces, over)
			if err != nil {
				return err
			}
			wl, err := cruxWorkload(jobs, spec.GPUs())
			if err != nil {
				return err
			}
			var setups []sim.Setup
			for _, name := range names {
				setup, err := cruxSetup(name)
				if err != nil {
					return err
				}
				setups = append(setups, setup)
			}
			sim.AutoQueues(spec, wl)
			use, jct := []string{c.name, fmt.Sprint(jobs), fmt.Sprintf("%d:1", over)}, []string{"mean JCT, h", "", ""}
			computing := map[string]float64{}
			for _, o := range sim.RunAll(ctx, spec, sim.Prepare(wl, spec, sim.Estimates{}, sim.PerNode), setups, nil) {
				if o.Err != nil {
					return o.Err
				}
				sum := o.Run.Summarise()
				sending := sum.SendingHours * 3600 / (float64(spec.GPUs()) * sum.Makespan)
				computing[o.Setup.Traffic] = (sum.Utilisation - sending) / sum.Allocation
				use = append(use, fmt.Sprintf("%.2f %%", 100*computing[o.Setup.Traffic]))
				jct = append(jct, fmt.Sprintf("%.2f", sum.JCT.Mean/3600))
			}
			gain := func(of string) string { return fmt.Sprintf("%+.1f %%", 100*(computing["crux"]/computing[of]-1)) }
			use = append(use, c.published, gain("sincronia"), gain("cassini"))
			s.Cells = append(s.Cells, use, append(jct, "", "", ""))
		}
	}
	t.Sections = append(t.Sections, s)
	return ctx.Err()
}
