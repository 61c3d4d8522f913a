//go:build linux

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/demojobs"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/rules"
)

// configPath is where the configuration is by default.
func configPath() string {
	if os.Getuid() == 0 {
		return "/etc/muster/muster.yaml"
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "muster", "muster.yaml")
}

// configFile is a configuration with where it comes from; no path: there is no
// file.
type configFile struct {
	path string
	data []byte
	*config.Serve
}

// locate names the line that an error about what the file says is about.
func (f *configFile) locate(err error) error {
	if f.path == "" {
		return err
	}
	return config.Locate(f.path, f.data, err)
}

// readConfig reads the configuration; without a file it is empty, unless the
// file was named.
func readConfig(path string) (*configFile, error) {
	named := path != ""
	if !named {
		path = configPath()
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		conf, err := config.ReadServe("", strings.NewReader("{}"))
		return &configFile{Serve: conf}, err
	}
	if err != nil {
		return nil, err
	}
	conf, err := config.ReadServe(path, strings.NewReader(string(data)))
	return &configFile{path, data, conf}, err
}

// effective reads the configuration and puts the flags that are given over it,
// the defaults of the others under it.
func (f *serveFlags) effective(c *cobra.Command) (*configFile, error) {
	conf, err := readConfig(f.config)
	if err != nil {
		return nil, err
	}
	if err := f.over(c, conf.Serve); err != nil {
		return nil, usage(err)
	}
	if err := checkListen(conf.Serve); err != nil {
		return nil, usage(conf.locate(err))
	}
	if f.demo {
		f.demoDefaults(c, conf.Serve)
	}
	return conf, nil
}

// over puts flags over what a file says.
func (f *serveFlags) over(c *cobra.Command, conf *config.Serve) error {
	given := c.Flags().Changed
	if given("tls-cert") || given("tls-key") || given("tls-self-signed") {
		conf.Cert, conf.Key, conf.SelfSigned = f.tcp.cert, f.tcp.key, f.tcp.selfSigned
	}
	for _, v := range []struct {
		flag, value string
		to          *string
	}{{"state", f.state, &conf.State}, {"socket", f.socket, &conf.Socket}, {"gpus", f.gpus, &conf.GPUs},
		{"policy", f.policy, &conf.Policy},
		{"place", f.placer, &conf.Placer}, {"backfill", f.backfill, &conf.Backfill},
		{"traffic", f.traffic, &conf.Traffic},
		{"listen", f.tcp.listen, &conf.Listen}} {
		if given(v.flag) || *v.to == "" {
			*v.to = v.value
		}
	}
	if socket := os.Getenv("MUSTER_SOCKET"); socket != "" && !given("socket") { // where its clients look
		conf.Socket = socket
	}
	if given("cpus") || conf.CPUs == 0 {
		conf.CPUs = f.cpus
	}
	if given("gpu-hour-cost") {
		conf.HourCost = f.hourCost
	}
	if given("insecure") {
		conf.Insecure = f.tcp.insecure
	}
	if given("host") {
		conf.Hosts = f.tcp.hosts
	}
	if given("sample-every") || conf.SampleEvery == nil {
		conf.SampleEvery = &f.sample
	}
	if given("keep") || conf.Keep == nil {
		keep, err := cluster.ParseDuration(f.keep)
		if err != nil {
			return fmt.Errorf("--keep: %w", err)
		}
		conf.Keep = &keep
	}
	if given("log-level") {
		level, err := config.ParseLevel(f.logLevel)
		if err != nil {
			return fmt.Errorf("--log-level: %w", err)
		}
		conf.LogLevel = level
	}
	conf.KillWait = cmp.Or(conf.KillWait, 10*time.Second)
	var err error
	conf.State, err = filepath.Abs(conf.State)
	return err
}

// settings are what of a configuration can change while the daemon runs.
func (f *serveFlags) settings(conf *config.Serve, spec *cluster.Spec) rules.Settings {
	s := rules.Settings{Policy: conf.Policy, Placer: conf.Placer, Backfill: conf.Backfill, MinRuntime: conf.MinRuntime,
		Starvation: conf.Starvation, HoldAfter: conf.HoldAfter,
		Stop: &conf.Stop, Queues: conf.Queues, Members: map[string]rules.Members{},
		DefaultQueues: rules.DefaultQueues{Queue: conf.DefaultQueue, Users: conf.DefaultQueues},
		KillWait:      conf.KillWait, Keep: *conf.Keep, HourCost: conf.HourCost, Perf: conf.Perf, Defrag: conf.Defrag,
		Saving: conf.Saving}
	if _, s.Zone = wallTime().Zone(); conf.Zone != nil {
		s.Zone = *conf.Zone
	}
	weighed := *spec
	weighed.Weigh(conf.Models)
	s.Models = weighed.Models
	for _, p := range conf.Partitions {
		if p.Nodes == nil {
			p.Nodes = []string{spec.Nodes[0].Name}
		}
		s.Partitions = append(s.Partitions, p)
	}
	for q, p := range conf.Members {
		s.Members[q] = rules.Members(p)
	}
	several := os.Getuid() == 0
	l := conf.LimitsFor(several)
	s.Limits = rules.Limits{Jobs: l.Jobs, BareTasks: l.BareTasks, Name: l.Name, Comment: l.Comment, Env: l.Env,
		Request: l.Request}
	s.AuditKeep = conf.AuditKeep
	s.Urgency = rules.Urgency{Restricted: conf.Urgency.Restricts(several), Queues: conf.Urgency.Queues}
	if conf.Idle != nil {
		idle := observe.IdleRules(*conf.Idle)
		s.Idle = &idle
	}
	if f.demo {
		s.Queues = demojobs.Queues(spec.Nodes[0].GPUs)
		s.DefaultQueues.Queue = s.Queues[0].Name
	}
	return s
}

// fits holds a configuration against the machine: guarantees, for instance,
// against its GPUs.
func (f *serveFlags) fits(conf *configFile, spec *cluster.Spec) (local.Options, error) {
	if conf.Traffic != "" && conf.Links == nil {
		return local.Options{}, conf.locate(config.At(errors.New("what links are there? (network.links)"), "traffic"))
	}
	opt := local.Options{Rules: config.Rules{Spec: *spec, Traffic: conf.Traffic}}
	opt.Rules.Spec.Network = conf.Links
	s := f.settings(conf.Serve, spec)
	opt.Apply(&s)
	_, err := opt.Rules.NewEngine()
	return opt, conf.locate(err)
}

func newConfig() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "The configuration of muster serve"}
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Read a configuration, say what is wrong with it, and what is understood",
		Args: cobra.MaximumNArgs(1),
		Long: "Reads FILE, or the file that muster serve would read, checks it as the daemon would, and lists every setting\n" +
			"with its default where the file says nothing. Nothing is changed.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				if done, err := checkKube(c.OutOrStdout(), args[0]); done {
					return err
				}
			}
			f := &serveFlags{}
			serve := &cobra.Command{}
			f.add(serve)
			if len(args) > 0 {
				f.config = args[0]
			}
			conf, err := f.effective(serve)
			if err != nil {
				return err
			}
			return f.printChecked(c.OutOrStdout(), conf)
		},
	}
	c.AddCommand(check, newReload())
	return c
}

// checkKube checks and lists a file that says it is a configuration of muster
// kube; done: it was one.
func checkKube(w io.Writer, path string) (done bool, err error) {
	data, err := os.ReadFile(path)
	if err != nil || !config.IsKube(data) {
		return false, nil // the next reader says so
	}
	conf, err := config.ReadKube(path, bytes.NewReader(data))
	if err != nil {
		return true, err
	}
	fmt.Fprintf(w, "%s: fine, for muster kube; %d queues (Queue objects of a cluster come on top)\n", path,
		len(conf.Queues))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, s := range conf.Settings() {
		fmt.Fprintf(t, "  %s\t%s\n", s.Key, s.Value)
	}
	return true, t.Flush()
}

// printChecked holds a configuration against this machine and lists it.
func (f *serveFlags) printChecked(w io.Writer, conf *configFile) error {
	note := ""
	dev, err := openDevices(conf, conf.State)
	if err == nil {
		_, err = f.fits(conf, &dev.Spec)
		if err := errors.Join(err, dev.Source.Close()); err != nil {
			return err
		}
	} else {
		note = "guarantees were not held against GPUs, of which this machine shows none"
	}
	if conf.Cert != "" {
		if _, err := loadTLS(conf.Serve, nil, time.Time{}); err != nil {
			return conf.locate(err)
		}
	}
	fmt.Fprintf(w, "%s: fine; %d queues\n", cmp.Or(conf.path, "no file"), len(conf.Queues))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, s := range conf.Settings() {
		if s.Live {
			fmt.Fprintf(t, "  %s\t%s\n", s.Key, s.Value)
			continue
		}
		fmt.Fprintf(t, "  %s\t%s (counts at a start of the daemon)\n", s.Key, s.Value)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}

func newReload() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "reload", Short: "Let the daemon read its configuration again; running jobs continue", Args: cobra.NoArgs,
		Long: "What can change while the daemon runs counts at once, all of it or, if anything is wrong, nothing; the answer says\n" +
			"what changed and what needs a restart of the daemon. SIGHUP to the daemon does the same. Only admins may.",
		RunE: func(c *cobra.Command, _ []string) error {
			var v api.Reloaded
			if err := client.Connect().Do(c.Context(), http.MethodPost, "/v1/config/reload", nil, &v); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			printReloaded(c.OutOrStdout(), &v)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func printReloaded(w io.Writer, v *api.Reloaded) {
	fmt.Fprintf(w, "%s: read again, %d changed\n", cmp.Or(v.File, "no file"), len(v.Applied))
	for i := range v.Applied {
		fmt.Fprintf(w, "  %s\n", changeText(&v.Applied[i]))
	}
	for i := range v.Restart {
		fmt.Fprintf(w, "  %s (not applied: it needs a restart of the daemon)\n", changeText(&v.Restart[i]))
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}

func changeText(c *api.ConfigChange) string {
	return fmt.Sprintf("%s: %s -> %s", c.Key, cmp.Or(c.Old, "(none)"), cmp.Or(c.New, "(none)"))
}
