package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// KubeMIG says which nodes of a Kubernetes cluster may be repartitioned, and how.
type KubeMIG struct {
	Selector   map[string]string // labels that such a node has
	Space, Map string            // ConfigMap that defines the configurations
	Configs    []string          // allowed configurations; none: all of the map
	After      time.Duration     // how long a job has to have waited
	Keep       time.Duration     // least time between two changes of a node
	Timeout    time.Duration     // after this time a node that is not as wanted is left alone
}

type kubeMIGFile struct {
	Selector map[string]string `yaml:"selector"`
	Map      string            `yaml:"config_map"`
	Configs  []string          `yaml:"configs"`
	After    *Duration         `yaml:"after"`
	Keep     *Duration         `yaml:"keep"`
	Timeout  *Duration         `yaml:"timeout"`
}

// The ConfigMap that NVIDIA's GPU operator installs, and default times.
const (
	migMap     = "gpu-operator/default-mig-parted-config"
	migAfter   = time.Minute
	migKeep    = 10 * time.Minute
	migTimeout = 15 * time.Minute
)

// mig reads the rules.
func (f *kubeFile) mig() (list []KubeMIG, err error) {
	for i := range f.MIG {
		m, err := f.MIG[i].mig()
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		for k := range list {
			if err := apart(m.Selector, list[k].Selector, k); err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

func (f *kubeMIGFile) mig() (KubeMIG, error) {
	m := KubeMIG{Selector: f.Selector, Configs: f.Configs, After: migAfter, Keep: migKeep, Timeout: migTimeout}
	if len(f.Selector) == 0 {
		return m, errors.New(
			"selector: which nodes may be repartitioned? Name a label that they have, such as {pool: shared}")
	}
	text := f.Map
	if text == "" {
		text = migMap
	}
	var ok bool
	if m.Space, m.Map, ok = strings.Cut(text, "/"); !ok || m.Space == "" || m.Map == "" ||
		strings.Contains(m.Map, "/") {
		return m, fmt.Errorf("config_map: %q is not NAMESPACE/NAME, such as %s", text, migMap)
	}
	for i, c := range f.Configs {
		if c == "" || slices.Contains(f.Configs[:i], c) {
			return m, fmt.Errorf(
				"configs: %q is empty or listed twice; write names in the ConfigMap, such as all-disabled", c)
		}
	}
	for _, v := range []struct {
		name string
		from *Duration
		to   *time.Duration
	}{{"after", f.After, &m.After}, {"keep", f.Keep, &m.Keep}, {"timeout", f.Timeout, &m.Timeout}} {
		if v.from != nil {
			*v.to = time.Duration(*v.from)
		}
		if *v.to < 0 {
			return m, fmt.Errorf("%s: %s is below 0", v.name, cluster.FormatDuration(*v.to))
		}
	}
	if m.Timeout < time.Second {
		return m, fmt.Errorf("timeout: %s; partitioning a node takes a minute or more, such as 15m",
			cluster.FormatDuration(m.Timeout))
	}
	return m, nil
}

// text is the rule as a line.
func (m *KubeMIG) text() string {
	var w words
	w.add("selector", selectorText(m.Selector))
	w.add("config_map", m.Space+"/"+m.Map)
	configs := "all"
	if len(m.Configs) > 0 {
		configs = strings.Join(m.Configs, ",")
	}
	w.add("configs", configs)
	w.add("after", cluster.FormatDuration(m.After))
	w.add("keep", cluster.FormatDuration(m.Keep))
	w.add("timeout", cluster.FormatDuration(m.Timeout))
	return w.text()
}
