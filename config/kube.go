package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// Kube is the configuration of muster kube, with its defaults filled in.
type Kube struct {
	Policy, Placer, Backfill string
	MinRuntime, Starvation   time.Duration
	HoldAfter                time.Duration
	Stop                     [3]engine.StopRule
	Queues                   []cluster.Queue
	Repair                   bool   // gangs that do not state it are repaired when they lose a node
	DefaultQueue             string // of pods that name none; "": the queue "default", if there are queues
	Zone                     *int   // of the queues' windows, in seconds ahead of UTC; nil: this machine's
	LogLevel                 slog.Level
	Perf                     *perf.Table        // speeds known to policies that plan; nil: none
	Models                   []cluster.GPUModel // their weights in fair shares; others: 1
	// Defrag says whether gangs are moved; nil: none is. Await is how long the place of a moved gang is kept for
	// the pods that its owner creates instead; 0: the default of kube.Options.
	Defrag *engine.Defrag
	Await  time.Duration
	Saving *perf.Saving // how often pods are told to write checkpoints; nil: they are not told
	// MinSpeed is the least part of its speed alone that a pod accepts on a GPU that it
	// shares, if it states none, ppm; 0: any.
	MinSpeed int64
	Power    []KubePower   // nodes that may be switched off
	Loans    []KubeLoan    // nodes that are lent
	MIG      []KubeMIG     // nodes that may be repartitioned
	Services *KubeServices // how inference services are scaled; nil: none is

	Network *cluster.Network // nil: it is not described
	QoS     QoS              // by which marks it knows classes of traffic
	Traffic string           // policy; "": jobs' traffic is left alone

	Scheduler string   // schedulerName of the pods to schedule
	GPUs      []string // extended resources that count as GPUs
	Drivers   []string // of dynamic resource allocation, whose devices count as GPUs
	Labels    KubeLabels
	// Classes are the tiers of pods by the name of their PriorityClass, for pods without a label that names a
	// tier.
	Classes map[string]cluster.Tier
}

// kubeVersion and kubeKind may begin the file, as in other files of a cluster.
const kubeVersion, kubeKind = "muster.sh/v1alpha1", "MusterConfiguration"

// KubeLabels are the node labels from which a node's properties are read.
type KubeLabels struct {
	Product  string `yaml:"product"`  // GPU model
	Memory   string `yaml:"memory"`   // of a GPU, in MiB
	Replicas string `yaml:"replicas"` // of each shared GPU
	Sharing  string `yaml:"sharing"`  // how it is shared: mps, time-slicing
	Clique   string `yaml:"clique"`   // NVLink domain over several nodes
	Rack     string `yaml:"rack"`
	Fabric   string `yaml:"fabric"`       // spine block
	Core     string `yaml:"core"`         // what joins these
	Count    string `yaml:"count"`        // GPUs of the node, whole or in slices
	Config   string `yaml:"mig_config"`   // how its GPUs are to be partitioned
	State    string `yaml:"mig_state"`    // the outcome of that
	Strategy string `yaml:"mig_strategy"` // how slices are offered: single, mixed
}

type kubeFile struct {
	APIVersion   string              `yaml:"apiVersion"`
	Kind         string              `yaml:"kind"`
	Policy       string              `yaml:"policy"`
	Place        string              `yaml:"place"`
	Backfill     string              `yaml:"backfill"`
	MinRuntime   Duration            `yaml:"min_runtime"`
	Starvation   Duration            `yaml:"starvation"`
	HoldAfter    *Duration           `yaml:"hold_after"`
	Stop         map[string]stopFile `yaml:"stop"`
	Queues       []queueFile         `yaml:"queues"`
	DefaultQueue string              `yaml:"default_queue"`
	OnNodeLoss   string              `yaml:"on_node_loss"`
	Timezone     string              `yaml:"timezone"`
	LogLevel     string              `yaml:"log_level"`
	Perf         *perfFile           `yaml:"performance"`
	Models       []modelFile         `yaml:"models"`
	Scheduler    string              `yaml:"scheduler_name"`
	GPUs         []string            `yaml:"gpu_resources"`
	Drivers      []string            `yaml:"gpu_drivers"`
	Labels       KubeLabels          `yaml:"labels"`
	Classes      map[string]string   `yaml:"priority_classes"`
	Defrag       *kubeDefragFile     `yaml:"defragment"`
	Sharing      kubeSharingFile     `yaml:"sharing"`
	Power        []kubePowerFile     `yaml:"power"`
	Loans        []kubeLoanFile      `yaml:"loans"`
	MIG          []kubeMIGFile       `yaml:"mig"`
	Saving       *savingFile         `yaml:"checkpoints"`
	Services     *kubeServicesFile   `yaml:"services"`
	Network      *kubeNetworkFile    `yaml:"network"`
	Traffic      string              `yaml:"traffic"`
}

type kubeSharingFile struct {
	MinSpeed float64 `yaml:"min_speed"`
}

// ReadKube reads the configuration of muster kube; name is the file's name in errors, which also name the line.
// A text of only white space is a configuration with all defaults.
func ReadKube(name string, r io.Reader) (*Kube, error) {
	data, err := io.ReadAll(io.LimitReader(r, 16<<20))
	if err != nil {
		return nil, err
	}
	var f kubeFile
	if strings.TrimSpace(string(data)) != "" {
		if err := decode(name, data, &f); err != nil {
			return nil, err
		}
	}
	c, err := f.kube()
	if err != nil {
		return nil, Locate(name, data, err)
	}
	return c, nil
}

// IsKube reports whether a file declares itself a configuration of muster kube.
func IsKube(data []byte) bool {
	var f struct {
		Kind string `yaml:"kind"`
	}
	return yaml.Unmarshal(data, &f) == nil && f.Kind == kubeKind
}

func (f *kubeFile) kube() (*Kube, error) {
	if f.APIVersion != "" && f.APIVersion != kubeVersion {
		return nil, At(fmt.Errorf("%q is not %s", f.APIVersion, kubeVersion), "apiVersion")
	}
	if f.Kind != "" && f.Kind != kubeKind {
		return nil, At(fmt.Errorf("%q is not %s", f.Kind, kubeKind), "kind")
	}
	rules := &serveFile{Policy: f.Policy, Place: f.Place, Backfill: f.Backfill, MinRuntime: f.MinRuntime,
		Starvation: f.Starvation, HoldAfter: f.HoldAfter,
		Stop: f.Stop, Queues: f.Queues, Timezone: f.Timezone, LogLevel: f.LogLevel, Perf: f.Perf, Models: f.Models,
		Services: servicesFile{Keys: noKeys()}}
	s, err := rules.serve()
	if err == nil {
		err = s.checkQueues()
	}
	if err != nil {
		return nil, err
	}
	c := &Kube{Policy: cmp.Or(s.Policy, "multifactor"), Placer: cmp.Or(s.Placer, "best-fit"), Backfill: s.Backfill,
		MinRuntime: s.MinRuntime,
		Starvation: s.Starvation, HoldAfter: s.HoldAfter, Stop: s.Stop, Queues: s.Queues, DefaultQueue: f.DefaultQueue,
		Zone: s.Zone, LogLevel: s.LogLevel, Perf: s.Perf, Models: s.Models,
		Scheduler: cmp.Or(f.Scheduler, "muster"), GPUs: f.GPUs, Drivers: f.Drivers, Labels: f.Labels}
	for tier := range c.Stop {
		if c.Stop[tier].How == engine.Suspend {
			name := cluster.Tier(tier).String()
			return nil, At(errors.New(
				"suspend: a pod cannot be frozen on Kubernetes; checkpoint and kill are possible"), "stop", name, "how")
		}
	}
	switch f.OnNodeLoss {
	case "", "requeue":
	case "repair":
		c.Repair = true
	default:
		return nil, At(fmt.Errorf("%q is neither requeue nor repair", f.OnNodeLoss), "on_node_loss")
	}
	if err := f.mechanisms(c); err != nil {
		return nil, err
	}
	if len(c.GPUs) == 0 {
		c.GPUs = []string{"nvidia.com/gpu"}
	}
	for _, r := range c.GPUs {
		if d, n, ok := strings.Cut(r, "/"); !ok || d == "" || n == "" || strings.Contains(n, "/") {
			return nil, At(fmt.Errorf("%q is not an extended resource such as nvidia.com/gpu", r), "gpu_resources")
		}
	}
	if len(c.Drivers) == 0 {
		c.Drivers = []string{"gpu.nvidia.com"}
	}
	for _, r := range c.Drivers {
		if r == "" || strings.ContainsAny(r, "/ ") || !strings.Contains(r, ".") {
			return nil, At(fmt.Errorf(
				"%q is not the name of a DRA driver such as gpu.nvidia.com (kubectl get resourceslices lists them)", r),
				"gpu_drivers")
		}
	}
	if c.Classes, err = f.classes(); err != nil {
		return nil, err
	}
	if c.DefaultQueue != "" && len(c.Queues) > 0 &&
		!slices.ContainsFunc(c.Queues, func(q cluster.Queue) bool { return q.Name == c.DefaultQueue }) {
		var names []string
		for i := range c.Queues {
			names = append(names, c.Queues[i].Name)
		}
		return nil, At(cluster.Unknown("queue", c.DefaultQueue, names), "default_queue")
	}
	l := &c.Labels
	l.Product, l.Memory = cmp.Or(l.Product, "nvidia.com/gpu.product"), cmp.Or(l.Memory, "nvidia.com/gpu.memory")
	l.Replicas, l.Sharing = cmp.Or(l.Replicas, "nvidia.com/gpu.replicas"),
		cmp.Or(l.Sharing, "nvidia.com/gpu.sharing-strategy")
	l.Clique, l.Count = cmp.Or(l.Clique, "nvidia.com/gpu.clique"), cmp.Or(l.Count, "nvidia.com/gpu.count")
	l.Config, l.State = cmp.Or(l.Config, "nvidia.com/mig.config"), cmp.Or(l.State, "nvidia.com/mig.config.state")
	l.Strategy = cmp.Or(l.Strategy, "nvidia.com/mig.strategy")
	return c, nil
}

// mechanisms reads the parts that have a block of their own.
func (f *kubeFile) mechanisms(c *Kube) (err error) {
	if c.MinSpeed, err = minSpeed(f.Sharing.MinSpeed); err != nil {
		return At(err, "sharing")
	}
	if c.Power, err = f.power(); err != nil {
		return At(err, "power")
	}
	if c.Loans, err = f.loans(); err != nil {
		return At(err, "loans")
	}
	if err = awake(c.Power, c.Loans); err != nil {
		return At(err, "power")
	}
	if c.MIG, err = f.mig(); err != nil {
		return At(err, "mig")
	}
	if len(c.MIG) > 0 && len(f.GPUs) > 0 && !slices.Contains(f.GPUs, "nvidia.com/gpu") {
		return At(errors.New("gpu_resources has no nvidia.com/gpu, and only NVIDIA's GPUs are partitioned by a label"),
			"mig")
	}
	if c.Services, err = f.Services.services(); err != nil {
		return At(err, "services")
	}
	if c.Saving, err = f.Saving.saving(); err != nil {
		return At(err, "checkpoints")
	}
	if c.Defrag, c.Await, err = f.Defrag.moves(f.Timezone); err != nil {
		return At(err, "defragment")
	}
	return f.network(c)
}

// classes are the tiers of PriorityClasses: those that deploy/ creates, and those in the file.
func (f *kubeFile) classes() (map[string]cluster.Tier, error) {
	list := map[string]cluster.Tier{"muster-critical": cluster.Critical, "muster-standard": cluster.Standard,
		"muster-best-effort": cluster.BestEffort}
	for _, class := range slices.Sorted(maps.Keys(f.Classes)) {
		tier, err := cluster.ParseTier(f.Classes[class])
		if err != nil {
			return nil, At(err, "priority_classes", class)
		}
		list[class] = tier
	}
	return list, nil
}

// Settings lists the configuration, defaults included. All of it takes effect when the scheduler starts.
func (c *Kube) Settings() (list []Setting) {
	s := &Serve{Policy: c.Policy, Placer: c.Placer, Backfill: c.Backfill, MinRuntime: c.MinRuntime,
		Starvation: c.Starvation, HoldAfter: c.HoldAfter, Stop: c.Stop,
		Queues: c.Queues, Zone: c.Zone, LogLevel: c.LogLevel, Perf: c.Perf, Models: c.Models}
	for _, v := range s.Settings() {
		switch head, _, _ := strings.Cut(v.Key, "."); head {
		case "policy", "place", "backfill", "min_runtime", "starvation", "hold_after", "stop", "queues", "timezone",
			"log_level", "performance", "models":
			list = append(list, Setting{Key: v.Key, Value: v.Value})
		}
	}
	add := func(key, value string) {
		if value != "" {
			list = append(list, Setting{Key: key, Value: value})
		}
	}
	add("default_queue", cmp.Or(c.DefaultQueue, "default"))
	loss := "requeue"
	if c.Repair {
		loss = "repair"
	}
	add("on_node_loss", loss)
	add("defragment", kubeDefragText(c.Defrag, c.Await))
	if c.Saving != nil {
		add("checkpoints", savingText(c.Saving))
	}
	if c.MinSpeed > 0 {
		add("sharing.min_speed", number(float64(c.MinSpeed)/perf.Million))
	}
	for i := range c.Power {
		add(fmt.Sprintf("power[%d]", i), c.Power[i].text())
	}
	for i := range c.Loans {
		add(fmt.Sprintf("loans[%d]", i), c.Loans[i].text())
	}
	for i := range c.MIG {
		add(fmt.Sprintf("mig[%d]", i), c.MIG[i].text())
	}
	if c.Services != nil {
		add("services", c.Services.text())
	}
	add("traffic", c.Traffic)
	if c.Network != nil {
		add("network.rates", ratesText(c.Network.Rates))
		add("network.links", linksText(c.Network))
		add("network.interface", c.QoS.Interface)
		for i := range c.QoS.Classes {
			add("network.classes."+strconv.Itoa(i+1), c.QoS.Classes[i].text())
		}
	}
	add("scheduler_name", c.Scheduler)
	add("gpu_resources", strings.Join(c.GPUs, " "))
	add("gpu_drivers", strings.Join(c.Drivers, " "))
	for _, l := range []struct{ key, value string }{{"product", c.Labels.Product}, {"memory", c.Labels.Memory},
		{"replicas", c.Labels.Replicas}, {"sharing", c.Labels.Sharing}, {"clique", c.Labels.Clique},
		{"rack", c.Labels.Rack}, {"fabric", c.Labels.Fabric}, {"core", c.Labels.Core}, {"count", c.Labels.Count},
		{"mig_config", c.Labels.Config}, {"mig_state", c.Labels.State}, {"mig_strategy", c.Labels.Strategy}} {
		add("labels."+l.key, l.value)
	}
	for _, class := range slices.Sorted(maps.Keys(c.Classes)) {
		add("priority_classes."+class, c.Classes[class].String())
	}
	return list
}
