package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/api"
)

const (
	sshareDefault = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	sshareLong    = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
)

var sshareOptions = []option{
	{name: "accounts", short: 'A', arg: needs},
	{name: "all", short: 'a'},
	{name: "clusters", short: 'M', arg: needs, use: refused, note: "there is one cluster"},
	{name: "format", short: 'o', arg: needs},
	{name: "help"},
	{name: "helpformat", short: 'e'},
	{name: "long", short: 'l'},
	{name: "noheader", short: 'n'},
	{name: "noheader", short: 'h'}, // undocumented in Slurm, but used in scripts
	{name: "parsable", short: 'p'},
	{name: "parsable2", short: 'P'},
	{name: "partition", short: 'm', use: warned, note: "queues are not divided by partition"},
	{name: "usage"},
	{name: "users", short: 'u', arg: needs},
	{name: "Users", short: 'U'},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
}

// share is a line of sshare.
type share struct {
	*api.Share
	depth int
	whole float64 // total usage
}

// sshare shows the tree of queues and users that fair shares are computed from.
func (c *command) sshare() (int, error) {
	l, rest, done, err := c.common(sshareOptions, "sshare [OPTIONS]")
	if done || err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 1, says("Unrecognized option: %s", rest[0])
	}
	if l.set.has("helpformat") {
		c.printf("%s", acctNames(sshareFields()))
		return 0, nil
	}
	format := sshareDefault
	switch {
	case l.set.has("format"):
		format = l.set.get("format")
	case l.set.has("long"):
		format = sshareLong
	}
	cols, err := acctColumns(format, sshareFields())
	if err != nil {
		return 1, err
	}
	fair, err := c.svc.Fair()
	if err != nil {
		return 1, err
	}
	if !fair.Counted {
		c.errorf("sshare: the policy here is %s, which counts no usage (multifactor does): muster usage says who used what\n", fair.Policy)
	}
	c.printf("%s", acctText(&l.set, nil, cols, c.shares(&l.set, &fair)))
	return 0, nil
}

// shares are the lines, each queue followed by its users: the caller's own, or those asked for.
func (c *command) shares(s *settings, fair *api.Fair) []share {
	users := []string{c.svc.User()}
	if s.has("users") {
		users = userNames(strings.Split(s.get("users"), ","))
	}
	var accounts []string
	if s.has("accounts") {
		accounts = strings.Split(s.get("accounts"), ",")
	}
	root := &api.Share{Queue: "root", UsagePart: 1}
	for i := range fair.Shares {
		if f := &fair.Shares[i]; f.User == "" && f.Parent == "" {
			root.Usage += f.Usage
		}
	}
	var out []share
	add := func(f *api.Share, depth int) {
		if f.User == "" && s.has("Users") || f.User != "" && !s.has("all") && !slices.Contains(users, f.User) ||
			accounts != nil && !slices.Contains(accounts, f.Queue) {
			return
		}
		out = append(out, share{f, depth, root.Usage})
	}
	add(root, 0)
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for i := range fair.Shares {
			f := &fair.Shares[i]
			if f.User != "" || f.Parent != parent {
				continue
			}
			add(f, depth)
			for k := range fair.Shares {
				if u := &fair.Shares[k]; u.User != "" && u.Queue == f.Queue {
					add(u, depth+1)
				}
			}
			walk(f.Queue, depth+1)
		}
	}
	walk("", 1)
	return out
}

// sshareFields are sshare's, as under Slurm's Fair Tree.
var sshareFields = sync.OnceValue(func() []acctField[share] {
	return []acctField[share]{
		{"Account", 20, true, func(_ *view, r share) string { return strings.Repeat(" ", r.depth) + r.Queue }},
		{"Cluster", 10, false, func(*view, share) string { return "muster" }},
		{"User", 10, false, func(_ *view, r share) string { return r.User }},
		{"RawShares", 10, false, belowRoot(func(r share) string { return strconv.FormatInt(r.Shares, 10) })},
		{"NormShares", 11, false, func(_ *view, r share) string { return ratio(r.Part) }},
		{"RawUsage", 11, false, func(_ *view, r share) string { return whole(r.Usage) }},
		{"NormUsage", 11, false, func(_ *view, r share) string { return ratio(r.Usage / max(r.whole, 1e-9)) }},
		{"EffectvUsage", 13, false, func(_ *view, r share) string { return ratio(r.UsagePart) }},
		{"FairShare", 10, false, func(_ *view, r share) string {
			if r.User == "" {
				return "" // Slurm's Fair Tree has none for an account
			}
			return ratio(r.Factor)
		}},
		{"LevelFS", 10, false, belowRoot(func(r share) string {
			if r.UsagePart == 0 {
				return "inf"
			}
			return ratio(r.Part / r.UsagePart)
		})},
		{"GrpTRESMins", 30, false, func(*view, share) string { return "" }},
		{"TRESRunMins", 30, false, func(*view, share) string { return "" }},
	}
})

func belowRoot(get func(r share) string) func(*view, share) string {
	return func(_ *view, r share) string {
		if r.depth == 0 {
			return ""
		}
		return get(r)
	}
}

func ratio(f float64) string { return fmt.Sprintf("%.6f", f) }
