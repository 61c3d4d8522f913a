// Package config reads the files that people write: clusters, configurations, performance tables, submissions.
// Unknown keys, bad units and impossible values are errors that name file and line.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
)

type clusterFile struct {
	Name         string            `yaml:"name"`
	Epoch        string            `yaml:"epoch"`     // RFC 3339: the calendar time of a simulation's start
	Timezone     string            `yaml:"timezone"`  // "+01:00", for windows
	Sharing      string            `yaml:"sharing"`   // time-slicing (the default) or mps
	MIG          string            `yaml:"mig"`       // dynamic, instances or static: how GPUs are partitioned
	MinSpeed     float64           `yaml:"min_speed"` // default least part of its speed of a job in a share; 0: any
	Models       []modelFile       `yaml:"models"`
	Nodes        []nodeFile        `yaml:"nodes"`
	Partitions   []partitionFile   `yaml:"partitions"`
	Queues       []queueFile       `yaml:"queues"`
	Reservations []reservationFile `yaml:"reservations"`
	Loans        []loanFile        `yaml:"loans"`
	Power        []powerFile       `yaml:"power"`
	Network      *networkFile      `yaml:"network"`

	topology topology // that the network names
}

type modelFile struct {
	Name       string  `yaml:"name"`
	Memory     Memory  `yaml:"memory"`
	Generation string  `yaml:"generation"`
	NVLink     bool    `yaml:"nvlink"`
	NVSwitch   bool    `yaml:"nvswitch"`
	Like       string  `yaml:"like"`        // take MIG profiles from a known model
	Weight     float64 `yaml:"weight"`      // weight of an hour in fair shares; default 1
	Clients    int     `yaml:"mps_clients"` // most clients on one GPU; default 48, before Volta 16
}

type nodeFile struct {
	Name    string   `yaml:"name"`
	Model   string   `yaml:"model"`
	GPUs    int      `yaml:"gpus"`
	CPU     Cores    `yaml:"cpu"`
	RAM     Memory   `yaml:"ram"`
	Islands int      `yaml:"islands"`
	NVLink  string   `yaml:"nvlink"`
	Rack    string   `yaml:"rack"`
	Fabric  string   `yaml:"fabric"`
	Cores   []string `yaml:"cores"`
	State   string   `yaml:"state"`
	MIG     string   `yaml:"mig"`
}

type partitionFile struct {
	Name         string   `yaml:"name"`
	Nodes        string   `yaml:"nodes"`
	Default      bool     `yaml:"default"`
	MaxTime      Duration `yaml:"max_time"`
	DefaultTime  Duration `yaml:"default_time"`
	MaxGPUs      int      `yaml:"max_gpus"`
	Queues       []string `yaml:"queues"`
	Tiers        []string `yaml:"tiers"`
	PriorityTier int64    `yaml:"priority_tier"`
}

type queueFile struct {
	Name      string       `yaml:"name"`
	Parent    string       `yaml:"parent"` // or list it among the parent's children
	Guarantee GPUs         `yaml:"guarantee"`
	Limit     *GPUs        `yaml:"limit"`
	Lend      *GPUs        `yaml:"lend"`
	Weight    float64      `yaml:"weight"`
	Reserve   GPUs         `yaml:"reserve"`
	NoReclaim bool         `yaml:"no_reclaim"`
	UserGPUs  GPUs         `yaml:"user_gpus"`
	MaxJobs   int          `yaml:"max_jobs"`
	UserJobs  int          `yaml:"user_jobs"`
	Budget    int64        `yaml:"budget"`
	Period    Duration     `yaml:"period"`
	Shares    int64        `yaml:"shares"`
	Priority  int64        `yaml:"priority"`
	Windows   []windowFile `yaml:"windows"`
	Children  []queueFile  `yaml:"children"`
}

type windowFile struct {
	Days      Days  `yaml:"days"`
	From      Clock `yaml:"from"`
	To        Clock `yaml:"to"`
	Guarantee *GPUs `yaml:"guarantee"`
	Limit     *GPUs `yaml:"limit"`
}

type reservationFile struct {
	Name   string   `yaml:"name"`
	Start  Duration `yaml:"start"` // since the start of a simulation
	End    Duration `yaml:"end"`
	Every  Duration `yaml:"every"`
	Nodes  string   `yaml:"nodes"`
	GPUs   int      `yaml:"gpus"`
	Users  []string `yaml:"users"`
	Queues []string `yaml:"queues"`
}

// Load reads a cluster from the YAML file of that name; if there is none, the argument is a short form such as
// 64x8xA100-80GB.
func Load(arg string) (*cluster.Spec, error) {
	f, err := os.Open(arg)
	if errors.Is(err, os.ErrNotExist) {
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") || strings.ContainsRune(arg, '/') {
			return nil, err
		}
		return cluster.ParseShort(arg)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(arg, f)
}

// Read reads a cluster file; name is the file's name in errors.
func Read(name string, r io.Reader) (*cluster.Spec, error) {
	data, err := io.ReadAll(io.LimitReader(r, 64<<20))
	if err != nil {
		return nil, err
	}
	var f clusterFile
	if err := decode(name, data, &f); err != nil {
		return nil, err
	}
	if f.Network != nil && f.Network.File != "" {
		if f.topology, err = readTopology(name, f.Network.File); err != nil {
			return nil, Locate(name, data, At(err, "network", "topology"))
		}
	}
	spec, err := f.spec()
	if err == nil {
		err = f.addNetwork(spec)
	}
	return spec, Locate(name, data, err)
}

var unknownField = regexp.MustCompile(`line (\d+): field (\S+) not found in type config\.(\w+)`)

// decode reads YAML strictly and suggests what an unknown key may have meant.
func decode(name string, data []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(into)
	if err == nil {
		var root yaml.Node
		if err = yaml.Unmarshal(data, &root); err == nil {
			err = wholeNumbers(&root, reflect.TypeOf(into), "")
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the file is empty", name)
	case err == nil:
		return nil
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s:%s: %w", name, m[1], cluster.Unknown("key", m[2], keysOf(m[3])))
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ", "")
	if m := lineFirst.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s: %s", name, m[1], wanted(text[len(m[0]):]))
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		if line := lineWith(data, m[1]); line > 0 {
			return fmt.Errorf("%s:%d: %s", name, line, text)
		}
	}
	return fmt.Errorf("%s: %s", name, text)
}

var (
	lineFirst  = regexp.MustCompile(`^line (\d+): `)
	wrongValue = regexp.MustCompile(`^"([^"]*)"`) // the value quoted by a unit's parser
)

var wrongType = regexp.MustCompile("^cannot unmarshal !!\\w+ (?:`([^`]*)` )?into (\\S+)")

// wanted says in plain words which kind of value was expected.
func wanted(text string) string {
	m := wrongType.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	kind := map[string]string{"bool": "true or false", "int": "a whole number", "int64": "a whole number",
		"float64": "a number", "string": "a text"}[m[2]]
	switch {
	case strings.HasPrefix(m[2], "[]"):
		kind = "a list, such as [a, b]"
	case kind == "":
		kind = "keys with values, such as {name: a}"
	}
	if m[1] == "" {
		return "this is to be " + kind
	}
	return fmt.Sprintf("%q is not %s", m[1], kind)
}

// lineWith is the first line that contains a value; 0: none.
func lineWith(data []byte, value string) int {
	var root yaml.Node
	if yaml.Unmarshal(data, &root) != nil {
		return 0
	}
	var walk func(n *yaml.Node) int
	walk = func(n *yaml.Node) int {
		if n.Kind == yaml.ScalarNode && n.Value == value {
			return n.Line
		}
		for _, c := range n.Content {
			if line := walk(c); line > 0 {
				return line
			}
		}
		return 0
	}
	return walk(&root)
}

func keysOf(typeName string) []string {
	for _, v := range []any{clusterFile{}, modelFile{}, nodeFile{}, partitionFile{}, queueFile{}, windowFile{},
		reservationFile{}, loanFile{}, powerFile{}, wattsFile{}, perfFile{}, serveFile{}, kubeFile{}, KubeLabels{},
		defragFile{}, kubeDefragFile{}, kubeSharingFile{}, kubePowerFile{}, kubeLoanFile{}, kubeMIGFile{}, stopFile{},
		tlsFile{}, People{}, serviceFile{}, variantFile{}, pointFile{}, replicasFile{}, budgetFile{}, batchingFile{},
		kubeServicesFile{}, metricsFile{}, probeFile{}, languageFile{}, engineFile{}, loadFile{}, servicesFile{},
		serviceKeyFile{},
		networkFile{}, linkFile{}, closFile{}, trafficFile{}, unevenFile{},
		kubeNetworkFile{}, marksFile{}, markFile{},
		slurmTopology{}, slurmTree{}, slurmSwitch{}, slurmBlocks{}, slurmBlock{}} {
		t := reflect.TypeOf(v)
		if t.Name() != typeName {
			continue
		}
		var keys []string
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous {
				keys = append(keys, f.Tag.Get("yaml"))
			}
		}
		return keys
	}
	return nil
}

func (f *clusterFile) spec() (*cluster.Spec, error) {
	s := &cluster.Spec{Name: f.Name}
	if f.Sharing != "" {
		var err error
		if s.Sharing, err = cluster.ParseSharing(f.Sharing); err != nil {
			return nil, At(err, "sharing")
		}
	}
	if f.MIG != "" {
		way := slices.Index(cluster.MIGWays, f.MIG)
		if way < 0 {
			return nil, At(cluster.Unknown("way", f.MIG, cluster.MIGWays), "mig")
		}
		s.MIG = cluster.MIGWay(way)
	}
	least, err := minSpeed(f.MinSpeed)
	if err != nil {
		return nil, err
	}
	if s.MinSpeed = least; f.Epoch != "" {
		t, err := time.Parse(time.RFC3339, f.Epoch)
		if err != nil {
			return nil, fmt.Errorf("epoch %q is not a time such as 2026-11-16T00:00:00Z", f.Epoch)
		}
		s.Epoch = t.Unix()
	}
	if f.Timezone != "" {
		zone, err := parseZone(f.Timezone)
		if err != nil {
			return nil, fmt.Errorf("timezone %w", err)
		}
		s.Zone = zone
	}
	if s.Models, err = f.models(); err != nil {
		return nil, err
	}
	for _, step := range []func(*cluster.Spec) error{
		f.addNodes, f.addPartitions, f.addReservations, f.addLoans, f.addPower} {
		if err := step(s); err != nil {
			return nil, err
		}
	}
	return s, addQueues(s, f.Queues, "")
}

// models describes the models that the file names.
func (f *clusterFile) models() (models []cluster.GPUModel, err error) {
	var have []string
	for i := range f.Nodes {
		have = append(have, f.Nodes[i].Model)
	}
	slices.Sort(have)
	for _, m := range f.Models {
		list, err := m.named()
		if err != nil {
			return nil, err
		}
		if len(list) == 1 && list[0].Memory == 0 && !slices.Contains(have, m.Name) {
			return nil, fmt.Errorf("models: %w; for an unknown model state memory or like",
				cluster.Unknown("GPU model", m.Name, slices.Compact(have)))
		}
		if models, err = another(models, m.Name, list); err != nil {
			return nil, err
		}
	}
	return models, nil
}

// another appends the models of a name; none of them may be there already.
func another(models []cluster.GPUModel, name string, list []cluster.GPUModel) ([]cluster.GPUModel, error) {
	for _, g := range list {
		if slices.ContainsFunc(models, func(o cluster.GPUModel) bool { return o.Name == g.Name }) {
			if g.Name != name {
				return nil, fmt.Errorf("model %q is listed twice: %s is all models of that family", g.Name, name)
			}
			return nil, fmt.Errorf("model %q is listed twice", g.Name)
		}
		models = append(models, g)
	}
	return models, nil
}

// named is the models that a name stands for: one described in the file, a known one, or, for a short name such
// as A100, all known models of that family.
func (m modelFile) named() (list []cluster.GPUModel, err error) {
	if _, err := m.model(); err != nil {
		return nil, err // under the name in the file
	}
	known := cluster.Variants(m.Name)
	if m.Memory > 0 || m.Like != "" || len(known) == 0 {
		known = []cluster.GPUModel{{Name: m.Name}}
	}
	for i := range known {
		m.Name = known[i].Name
		g, err := m.model()
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

// model describes a GPU model; what the file leaves out of a known one is as known.
func (m modelFile) model() (cluster.GPUModel, error) {
	g := cluster.GPUModel{Name: m.Name, Memory: cluster.MiB(m.Memory), Generation: m.Generation, NVLink: m.NVLink,
		NVSwitch: m.NVSwitch}
	if _, ok := cluster.FindModel(m.Name); ok && m.Like == "" && g.Memory == 0 {
		m.Like = m.Name // only its weight is changed
	}
	if m.Like != "" {
		known, ok := cluster.FindModel(m.Like)
		if !ok {
			return g, fmt.Errorf("model %q: like %q is not a known GPU model", m.Name, m.Like)
		}
		known.Name = m.Name
		if g.Memory > 0 {
			known.Memory = g.Memory
		}
		g = known
	}
	if g.Weight = thousandths(m.Weight); m.Weight != 0 && (g.Weight < 1 || g.Weight > 1000*1000) {
		return g, fmt.Errorf("model %q: weight %g; between 0.001 and 1000 are possible", m.Name, m.Weight)
	}
	if g.Clients = m.Clients; m.Clients < 0 || m.Clients > int(cluster.Whole) {
		return g, fmt.Errorf("model %q: mps_clients %d; between 1 and %d are possible", m.Name, m.Clients,
			cluster.Whole)
	}
	return g, nil
}

// weights reads the weights of GPU models where there are real GPUs, whose other properties come from the driver
// or the node.
func weights(list []modelFile) (models []cluster.GPUModel, err error) {
	for _, m := range list {
		if m.Name == "" {
			return nil, At(errors.New("one has no name"), "models")
		}
		if m != (modelFile{Name: m.Name, Weight: m.Weight}) {
			return nil, At(fmt.Errorf(
				"model %q: only name and weight are possible here: real GPUs report everything else themselves",
				m.Name), "models", m.Name)
		}
		list, err := m.named()
		if err == nil {
			models, err = another(models, m.Name, list)
		}
		if err != nil {
			return nil, At(err, "models", m.Name)
		}
	}
	return models, nil
}

// parseZone reads the offset of local time from UTC, in seconds.
func parseZone(text string) (int, error) {
	t, err := time.Parse("-07:00", text)
	if err != nil {
		return 0, fmt.Errorf("%q is not an offset such as +01:00", text)
	}
	_, zone := t.Zone()
	return zone, nil
}

func (f *clusterFile) addNodes(s *cluster.Spec) error {
	if len(f.Nodes) == 0 {
		return errors.New("nodes: the cluster has none")
	}
	for _, n := range f.Nodes {
		names, err := Expand(n.Name)
		if err != nil {
			return fmt.Errorf("nodes: %w", err)
		}
		if n.Name == "*" {
			if names = f.topology.nodes; len(names) == 0 {
				return errors.New(`nodes: "*" is all nodes that the network's topology names, and there is none`)
			}
		}
		if len(names) == 0 {
			return errors.New("nodes: one has no name")
		}
		model := n.Model
		if _, own := s.Model(model); n.GPUs > 0 && !own {
			return fmt.Errorf("node %s: unknown GPU model %q; describe it under models", n.Name, model)
		}
		if m, ok := s.Model(model); ok {
			model = m.Name
		}
		if n.GPUs < 0 || n.GPUs > cluster.MaxGPUsPerNode {
			return fmt.Errorf("node %s: gpus: %d; between 0 and %d are possible", n.Name, n.GPUs,
				cluster.MaxGPUsPerNode)
		}
		if n.Islands < 0 || n.Islands > max(1, n.GPUs) {
			return fmt.Errorf("node %s: islands: %d; between 1 and %d (its GPUs) are possible", n.Name, n.Islands,
				max(1, n.GPUs))
		}
		if err := checkCores(n.Fabric, n.Cores); err != nil {
			return fmt.Errorf("node %s: cores: %w", n.Name, err)
		}
		var state cluster.NodeState
		if n.State != "" {
			if err := state.UnmarshalText([]byte(n.State)); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
		}
		one := cluster.Node{Model: model, GPUs: n.GPUs, CPU: cluster.Milli(n.CPU), RAM: cluster.MiB(n.RAM),
			Islands: n.Islands,
			NVLink:  n.NVLink, Rack: n.Rack, Fabric: n.Fabric, Cores: n.Cores, State: state, MIG: n.MIG}
		if f.MIG != "" && s.MIG != cluster.DynamicMIG && n.GPUs > 0 {
			one.MIG = cmp.Or(one.MIG, cluster.Unpartitioned)
		}
		if m, ok := s.Model(model); ok {
			if _, _, err := one.Geometry(&m); err != nil {
				return fmt.Errorf("node %s: mig: %w", n.Name, err)
			}
		}
		for _, name := range names {
			one.Name = name
			s.Nodes = append(s.Nodes, one)
		}
	}
	return nil
}

func (f *clusterFile) addPartitions(s *cluster.Spec) error {
	for _, p := range f.Partitions {
		names, err := Expand(p.Nodes)
		if err != nil {
			return fmt.Errorf("partition %s: %w", p.Name, err)
		}
		out := cluster.Partition{Name: p.Name, Nodes: names, Default: p.Default, MaxTime: time.Duration(p.MaxTime),
			DefaultTime: time.Duration(p.DefaultTime), MaxGPUs: p.MaxGPUs, Queues: p.Queues,
			PriorityTier: p.PriorityTier}
		for _, t := range p.Tiers {
			tier, err := cluster.ParseTier(t)
			if err != nil {
				return fmt.Errorf("partition %s: %w", p.Name, err)
			}
			out.Tiers = append(out.Tiers, tier)
		}
		s.Partitions = append(s.Partitions, out)
	}
	return nil
}

func (f *clusterFile) addReservations(s *cluster.Spec) error {
	for _, r := range f.Reservations {
		names, err := Expand(r.Nodes)
		if err != nil {
			return fmt.Errorf("reservation %s: %w", r.Name, err)
		}
		s.Reservations = append(s.Reservations,
			cluster.Reservation{Name: r.Name, Start: cluster.Time(r.Start), End: cluster.Time(r.End),
				Every: time.Duration(r.Every), Nodes: names, GPUs: r.GPUs, Users: r.Users, Queues: r.Queues})
	}
	return nil
}

func addQueues(s *cluster.Spec, queues []queueFile, parent string) error {
	orUnlimited := func(g *GPUs) cluster.Milli {
		if g == nil {
			return cluster.Unlimited
		}
		return cluster.Milli(*g)
	}
	for _, q := range queues {
		if q.Parent != "" && parent != "" && q.Parent != parent {
			return fmt.Errorf("queue %s: parent %q, but it is listed among the children of %q",
				q.Name, q.Parent, parent)
		}
		if !(q.Weight >= 0) || q.Weight > 1e6 || tooFine(q.Weight) {
			return fmt.Errorf("queue %s: weight %g; 0, or between 0.001 and 1e6, are possible", q.Name, q.Weight)
		}
		out := cluster.Queue{Name: q.Name, Parent: cmp.Or(parent, q.Parent), Guarantee: cluster.Milli(q.Guarantee),
			Limit: orUnlimited(q.Limit),
			Lend:  orUnlimited(q.Lend), Weight: thousandths(q.Weight), Reserve: cluster.Milli(q.Reserve),
			NoReclaim: q.NoReclaim,
			UserGPUs:  cluster.Milli(q.UserGPUs), MaxJobs: q.MaxJobs, UserJobs: q.UserJobs, Budget: q.Budget,
			Period: time.Duration(q.Period), Shares: q.Shares, Priority: q.Priority}
		for _, w := range q.Windows {
			out.Windows = append(out.Windows,
				cluster.Window{Days: uint8(w.Days), From: time.Duration(w.From), To: time.Duration(w.To),
					Guarantee: orUnlimited(w.Guarantee), Limit: orUnlimited(w.Limit)})
		}
		s.Queues = append(s.Queues, out)
		if err := addQueues(s, q.Children, q.Name); err != nil {
			return err
		}
	}
	return nil
}
