//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local"
)

// configPath is where the configuration is if nobody says where.
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

// readConfig reads the configuration; without a file it is empty, unless the
// file was named.
func readConfig(path string) (*config.Serve, error) {
	named := path != ""
	if !named {
		path = configPath()
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return config.ReadServe(path, f)
}

// configure applies the configuration, where no flag says otherwise, to the
// rules and the machine's options.
func (f *serveFlags) configure(c *cobra.Command, rules *journal.Header, opt *local.Options) (*config.Serve, error) {
	conf, err := readConfig(f.config)
	if err != nil || conf == nil {
		return &config.Serve{}, err
	}
	for _, v := range []struct {
		flag, text string
		to, says   *string
	}{{"policy", conf.Policy, &rules.Policy, &f.policy}, {"place", conf.Placer, &rules.Placer, &f.placer}, {"backfill", conf.Backfill, &rules.Backfill, &f.backfill}} {
		if v.text != "" && !c.Flags().Changed(v.flag) {
			*v.to, *v.says = v.text, v.text
		}
	}
	rules.MinRuntime, rules.Starvation, rules.Stop, rules.Spec.Queues = conf.MinRuntime, conf.Starvation, &conf.Stop, conf.Queues
	if conf.KillWait > 0 {
		opt.KillWait = conf.KillWait
	}
	opt.Members = map[string]local.Members{}
	for q, p := range conf.Members {
		opt.Members[q] = local.Members(p)
	}
	if _, err := rules.NewEngine(); err != nil { // guarantees, for instance, against what there is
		return nil, err
	}
	return conf, nil
}

func newConfig() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "The configuration of muster serve"}
	c.AddCommand(&cobra.Command{
		Use: "check FILE", Short: "Read a configuration and say what is wrong with it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			conf, err := readConfig(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: fine; %d queues\n", args[0], len(conf.Queues))
			return err
		},
	})
	return c
}
