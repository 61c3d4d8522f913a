package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// People names users and groups of a machine.
type People struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Serve is the configuration of muster serve. Empty or nil fields have their defaults.
type Serve struct {
	Policy, Placer, Backfill         string
	MinRuntime, Starvation, KillWait time.Duration
	HoldAfter                        time.Duration
	Stop                             [3]engine.StopRule
	Queues                           []cluster.Queue
	Partitions                       []cluster.Partition // without nodes: they contain this machine
	Members                          map[string]People   // by queue: who may submit there
	DefaultQueue                     string              // of jobs that name none; "": not stated
	DefaultQueues                    map[string]string   // the same, by user
	Operators, Admins                People
	Urgency                          Urgency
	limits                           limitsFile
	Idle                             *Idle // nil: idle jobs are left alone
	Sharing                          Sharing
	Saving                           *perf.Saving       // how often jobs checkpoint; nil: they are not told
	Defrag                           *engine.Defrag     // nil: no job is moved
	Perf                             *perf.Table        // speeds known to policies that plan; nil: none
	Models                           []cluster.GPUModel // their weights in fair shares; others: 1

	State, Socket string
	Checkpoints   string // parent of the checkpoint folders of jobs; "": in the state's folder
	GPUs          string // in the form of --gpus
	CPUs          int
	AuditKeep     time.Duration  // 0: until it is full
	Keep          *time.Duration // of the journal and the folders of old jobs; 0: for ever
	SampleEvery   *time.Duration // 0: never
	HourCost      float64        // of a GPU; 0: unknown
	LogLevel      slog.Level
	Zone          *int // of the queues' windows, in seconds ahead of UTC; nil: this machine's

	Services Services
	Network  QoS
	Links    *cluster.Network // nil: not described
	Traffic  string           // policy; "": jobs' traffic is left alone

	Listen     string // "": the default; none: no TCP
	Cert, Key  string // files
	SelfSigned bool
	Insecure   bool
	Hosts      []string
}

// Services is how services are run.
type Services struct {
	First, Last int           // ports of replicas
	Period      time.Duration // between decisions about a service
	Keys        []ServiceKey  // of those who may use them; nil: callers need no key
	Weights     string        // file of weights of inss-rl; "": those that come with Muster
	Learnt      []byte        // its content
}

type servicesFile struct {
	Ports   string            `yaml:"ports"`
	Period  Duration          `yaml:"period"`
	Keys    *[]serviceKeyFile `yaml:"keys"`
	Weights string            `yaml:"weights"`
}

// read is what the section says, and the defaults of what it does not.
func (f *servicesFile) read() (s Services, err error) {
	s = Services{First: 21000, Last: 21999, Period: time.Duration(f.Period)}
	if s.Period == 0 {
		s.Period = 5 * time.Second
	}
	if s.Period < time.Second || s.Period > time.Hour {
		return s, At(fmt.Errorf("%v is not from 1s to 1h", s.Period), "services", "period")
	}
	if f.Ports != "" {
		var rest string
		n, _ := fmt.Sscanf(f.Ports+" .", "%d-%d %s", &s.First, &s.Last, &rest)
		if n != 3 || rest != "." || s.First < 1024 || s.Last > 65535 || s.First > s.Last {
			return s, At(fmt.Errorf("%q is not a range of ports such as 21000-21999", f.Ports), "services", "ports")
		}
	}
	if s.Weights, s.Learnt, err = serviceWeights(f.Weights); err != nil {
		return s, At(err, "services", "weights")
	}
	s.Keys, err = serviceKeys(f.Keys)
	return s, err
}

type serveFile struct {
	Network    marksFile           `yaml:"network"`
	Traffic    string              `yaml:"traffic"`
	Services   servicesFile        `yaml:"services"`
	Policy     string              `yaml:"policy"`
	Place      string              `yaml:"place"`
	Backfill   string              `yaml:"backfill"`
	MinRuntime Duration            `yaml:"min_runtime"`
	Starvation Duration            `yaml:"starvation"`
	HoldAfter  *Duration           `yaml:"hold_after"`
	KillWait   Duration            `yaml:"kill_wait"`
	Stop       map[string]stopFile `yaml:"stop"`
	Queues     []queueFile         `yaml:"queues"`
	Partitions []partitionFile     `yaml:"partitions"`
	Loans      []loanFile          `yaml:"loans"` // refused
	Power      []powerFile         `yaml:"power"` // refused
	Members    map[string]People   `yaml:"members"`
	Operators  People              `yaml:"operators"`
	Admins     People              `yaml:"admins"`
	Limits     limitsFile          `yaml:"limits"`
	Urgent     urgentFile          `yaml:"urgent"`
	Idle       *idleFile           `yaml:"idle"`
	Saving     *savingFile         `yaml:"checkpoints"`
	Sharing    *sharingFile        `yaml:"sharing"`
	Defrag     *defragFile         `yaml:"defragment"`
	Perf       *perfFile           `yaml:"performance"`
	Models     []modelFile         `yaml:"models"`

	DefaultQueue  string            `yaml:"default_queue"`
	DefaultQueues map[string]string `yaml:"default_queues"`

	State       string    `yaml:"state"`
	Checkpoints string    `yaml:"checkpoint_dir"`
	Socket      string    `yaml:"socket"`
	GPUs        string    `yaml:"gpus"`
	CPUs        int       `yaml:"cpus"`
	Keep        *Duration `yaml:"keep"`
	AuditKeep   *Duration `yaml:"audit_keep"`
	SampleEvery *Duration `yaml:"sample_every"`
	HourCost    float64   `yaml:"gpu_hour_cost"`
	LogLevel    string    `yaml:"log_level"`
	Timezone    string    `yaml:"timezone"`

	Listen   string   `yaml:"listen"`
	TLS      tlsFile  `yaml:"tls"`
	Insecure bool     `yaml:"insecure"`
	Hosts    []string `yaml:"hosts"`
}

type tlsFile struct {
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	SelfSigned bool   `yaml:"self_signed"`
}

type stopFile struct {
	How   string    `yaml:"how"`
	Grace *Duration `yaml:"grace"`
}

// ReadServe reads the configuration of muster serve; name is the file's name in errors, which also name the
// line.
func ReadServe(name string, r io.Reader) (*Serve, error) {
	data, err := io.ReadAll(io.LimitReader(r, 16<<20))
	if err != nil {
		return nil, err
	}
	f := serveFile{Services: servicesFile{Keys: noKeys()}}
	if err := decode(name, data, &f); err != nil {
		return nil, err
	}
	c, err := f.serve()
	if err == nil {
		err = c.checkQueues()
	}
	if err != nil {
		return nil, Locate(name, data, err)
	}
	return c, nil
}

func (f *serveFile) serve() (*Serve, error) {
	if len(f.Loans) > 0 {
		return nil, At(errors.New("one machine cannot be given back while it runs jobs: its services lend GPUs by need (lend in a service's file); muster sim has loans in the cluster file, muster kube in its configuration"), "loans")
	}
	if len(f.Power) > 0 {
		return nil, At(errOnePower, "power")
	}
	c := &Serve{Policy: f.Policy, Placer: f.Place, Backfill: f.Backfill, MinRuntime: time.Duration(f.MinRuntime),
		Starvation: time.Duration(f.Starvation),
		KillWait:   time.Duration(f.KillWait), Stop: engine.DefaultStop, Members: f.Members, Operators: f.Operators,
		Admins: f.Admins,
		State:  f.State, Checkpoints: f.Checkpoints, Socket: f.Socket, GPUs: f.GPUs, CPUs: f.CPUs,
		Keep: (*time.Duration)(f.Keep), SampleEvery: (*time.Duration)(f.SampleEvery),
		HourCost: f.HourCost, Listen: f.Listen, Cert: f.TLS.Cert, Key: f.TLS.Key, SelfSigned: f.TLS.SelfSigned,
		Insecure: f.Insecure, Hosts: f.Hosts, limits: f.Limits,
		AuditKeep: time.Duration(*cmp.Or(f.AuditKeep, &defaultAuditKeep))}
	for _, step := range []func(*Serve) error{f.checkRules, f.checkMachine, f.stopRules} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	names, err := c.takeQueues(f)
	if err != nil {
		return nil, err
	}
	if c.Urgency, err = f.Urgent.urgency(names); err != nil {
		return nil, At(err, "urgent")
	}
	if c.Idle, err = f.Idle.idle(names); err != nil {
		return nil, At(err, "idle")
	}
	if c.Saving, err = f.Saving.saving(); err != nil {
		return nil, At(err, "checkpoints")
	}
	if c.Sharing, err = f.Sharing.sharing(); err != nil {
		return nil, At(err, "sharing")
	}
	if c.Defrag, err = f.Defrag.defrag(f.Timezone); err != nil {
		return nil, At(err, "defragment")
	}
	if c.Models, err = weights(f.Models); err != nil {
		return nil, err
	}
	if c.Services, err = f.Services.read(); err != nil {
		return nil, err
	}
	if c.Network, err = f.Network.read(); err != nil {
		return nil, err
	}
	if c.Links, err = f.Network.links(&c.Network); err != nil {
		return nil, err
	}
	if c.Traffic = f.Traffic; c.Traffic != "" {
		if _, err := traffic.New(c.Traffic); err != nil {
			return nil, At(err, "traffic")
		}
	}
	if f.Perf != nil {
		if c.Perf, err = f.Perf.table(); err != nil {
			return nil, At(err, "performance")
		}
	}
	return c, nil
}

// takeQueues takes over queues, partitions and members, and returns the queues' names.
func (c *Serve) takeQueues(f *serveFile) ([]string, error) {
	var spec cluster.Spec
	if err := addQueues(&spec, f.Queues, ""); err != nil {
		return nil, err
	}
	if err := (&clusterFile{Partitions: f.Partitions}).addPartitions(&spec); err != nil {
		return nil, err
	}
	for i := range spec.Partitions {
		if f.Partitions[i].Nodes == "" {
			spec.Partitions[i].Nodes = nil
		}
	}
	c.Queues, c.Partitions = spec.Queues, spec.Partitions
	names := queueNames(c.Queues)
	for _, q := range slices.Sorted(maps.Keys(f.Members)) {
		if !slices.Contains(names, q) {
			return nil, At(cluster.Unknown("queue", q, names), "members", q)
		}
	}
	if err := c.defaultQueues(f, names); err != nil {
		return nil, err
	}
	for i := range c.Partitions {
		for _, q := range c.Partitions[i].Queues {
			if !slices.Contains(names, q) {
				return nil, At(fmt.Errorf("%s: %w", c.Partitions[i].Name, cluster.Unknown("queue", q, names)),
					"partitions", c.Partitions[i].Name)
			}
		}
	}
	return names, nil
}

var defaultAuditKeep = Duration(365 * 24 * time.Hour)

func queueNames(queues []cluster.Queue) (names []string) {
	for i := range queues {
		names = append(names, queues[i].Name)
	}
	return names
}

// checkRules checks the settings of the engine.
func (f *serveFile) checkRules(c *Serve) error {
	if c.Policy != "" {
		if _, err := policy.New(c.Policy); err != nil {
			return At(err, "policy")
		}
	}
	if c.Placer != "" {
		if _, err := place.New(c.Placer); err != nil {
			return At(err, "place")
		}
	}
	if c.Backfill != "" {
		if _, err := engine.ParseBackfill(c.Backfill); err != nil {
			return At(err, "backfill")
		}
	}
	if c.HoldAfter = engine.DefaultHoldAfter; f.HoldAfter != nil {
		c.HoldAfter = time.Duration(*f.HoldAfter)
	}
	for key, d := range map[string]*Duration{"min_runtime": &f.MinRuntime, "starvation": &f.Starvation,
		"hold_after": f.HoldAfter, "kill_wait": &f.KillWait, "keep": f.Keep, "audit_keep": f.AuditKeep,
		"sample_every": f.SampleEvery} {
		if d != nil && *d < 0 {
			return At(fmt.Errorf("%s is below 0", cluster.FormatDuration(time.Duration(*d))), key)
		}
	}
	return nil
}

// checkMachine checks the settings of the daemon itself.
func (f *serveFile) checkMachine(c *Serve) error {
	switch {
	case f.CPUs < 0 || f.CPUs > 1<<16:
		return At(fmt.Errorf("%d; between 1 and %d are possible", f.CPUs, 1<<16), "cpus")
	case f.Checkpoints != "" && !filepath.IsAbs(f.Checkpoints):
		return At(fmt.Errorf("%q is not an absolute path", f.Checkpoints), "checkpoint_dir")
	case !(f.HourCost >= 0) || f.HourCost > 1e9:
		return At(fmt.Errorf("%g is not what an hour of a GPU can cost", f.HourCost), "gpu_hour_cost")
	case (f.TLS.Cert == "") != (f.TLS.Key == ""):
		return At(errors.New("give cert and key, or neither"), "tls")
	case f.TLS.Cert != "" && f.TLS.SelfSigned:
		return At(errors.New("a certificate is given already (cert)"), "tls", "self_signed")
	}
	if f.Timezone != "" {
		zone, err := parseZone(f.Timezone)
		if err != nil {
			return At(err, "timezone")
		}
		c.Zone = &zone
	}
	if f.LogLevel == "" {
		return nil
	}
	level, err := ParseLevel(f.LogLevel)
	c.LogLevel = level
	return At(err, "log_level")
}

// levels are the log levels by name, from the most verbose on.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"error": slog.LevelError}

// ParseLevel reads a log level: debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	if v, ok := levels[strings.ToLower(text)]; ok {
		return v, nil
	}
	return slog.LevelInfo, cluster.Unknown("log level", text, []string{"debug", "info", "warn", "error"})
}

func (f *serveFile) stopRules(c *Serve) error {
	for _, name := range slices.Sorted(maps.Keys(f.Stop)) {
		tier, err := cluster.ParseTier(name)
		if err != nil {
			return At(err, "stop", name)
		}
		rule, s := &c.Stop[tier], f.Stop[name]
		if s.How != "" {
			if rule.How, err = engine.ParseHow(s.How); err != nil {
				return At(err, "stop", name, "how")
			}
		}
		if s.Grace != nil {
			rule.Grace = time.Duration(*s.Grace)
		}
	}
	return nil
}

// checkQueues checks the tree and the partitions as far as that is possible without the machine: names, parents,
// windows, limits below guarantees.
func (c *Serve) checkQueues() error {
	spec := cluster.Spec{Queues: c.Queues}
	for i := range 1024 { // guarantees are compared with the real number of GPUs later
		spec.Nodes = append(spec.Nodes,
			cluster.Node{Name: fmt.Sprintf("n%d", i), Model: "H100-80GB", GPUs: cluster.MaxGPUsPerNode})
	}
	if err := Validate(&spec); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.Name == "" || seen[p.Name] {
			return At(fmt.Errorf("%q is defined twice or has no name", p.Name), "partitions", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

// defaultQueues takes over the queues of jobs that name none.
func (c *Serve) defaultQueues(f *serveFile, names []string) error {
	if q := f.DefaultQueue; q != "" && !slices.Contains(names, q) {
		return At(cluster.Unknown("queue", q, names), "default_queue")
	}
	for _, user := range slices.Sorted(maps.Keys(f.DefaultQueues)) {
		if q := f.DefaultQueues[user]; !slices.Contains(names, q) {
			return At(fmt.Errorf("%s: %w", user, cluster.Unknown("queue", q, names)), "default_queues", user)
		}
	}
	c.DefaultQueue, c.DefaultQueues = f.DefaultQueue, f.DefaultQueues
	return nil
}
