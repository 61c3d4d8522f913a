package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

// Setting is one value of a configuration, in words.
type Setting struct {
	Key, Value string
	Live       bool // a reload applies it; otherwise it needs a restart
}

// Change is a setting that differs between two configurations. An empty value means that the setting is absent.
type Change struct {
	Key, Old, New string
	Live          bool
}

// Settings lists a configuration, defaults included, in the order of the documentation.
func (c *Serve) Settings() (list []Setting) {
	add := func(live bool, key, value string) {
		if value != "" {
			list = append(list, Setting{key, value, live})
		}
	}
	duration := func(d time.Duration) string { return cluster.FormatDuration(d) }
	optional := func(d *time.Duration) string {
		if d == nil {
			return ""
		}
		return duration(*d)
	}
	add(true, "policy", c.Policy)
	add(true, "place", c.Placer)
	add(true, "backfill", c.Backfill)
	add(true, "min_runtime", duration(c.MinRuntime))
	add(true, "starvation", duration(c.Starvation))
	add(true, "hold_after", duration(c.HoldAfter))
	add(true, "kill_wait", duration(c.KillWait))
	for tier, r := range c.Stop {
		add(true, "stop."+cluster.Tier(tier).String(), r.How.String()+" "+duration(r.Grace))
	}
	for i := range c.Queues {
		add(true, "queues."+c.Queues[i].Name, queueText(&c.Queues[i]))
	}
	if c.Zone != nil {
		add(true, "timezone", time.Unix(0, 0).In(time.FixedZone("", *c.Zone)).Format("-07:00"))
	}
	for i := range c.Partitions {
		add(true, "partitions."+c.Partitions[i].Name, partitionText(&c.Partitions[i]))
	}
	for _, q := range slices.Sorted(maps.Keys(c.Members)) {
		add(true, "members."+q, peopleText(c.Members[q]))
	}
	if c.DefaultQueue != "" {
		add(true, "default_queue", c.DefaultQueue)
	}
	for _, user := range slices.Sorted(maps.Keys(c.DefaultQueues)) {
		add(true, "default_queues."+user, c.DefaultQueues[user])
	}
	if c.Idle != nil {
		add(true, "idle", idleText(c.Idle))
	}
	if c.Saving != nil {
		add(true, "checkpoints", savingText(c.Saving))
	}
	add(true, "defragment", defragText(c.Defrag))
	if c.Perf != nil {
		add(true, "performance", PerfText(c.Perf))
	}
	for i := range c.Models {
		add(true, "models."+c.Models[i].Name,
			"weight "+number(float64(cmp.Or(c.Models[i].Weight, cluster.Whole))/float64(cluster.Whole)))
	}
	add(true, "operators", peopleText(c.Operators))
	add(true, "admins", peopleText(c.Admins))
	c.limits.settings(add)
	add(true, "urgent.who", c.Urgency.Who)
	add(true, "urgent.queues", strings.Join(c.Urgency.Queues, " "))
	if c.HourCost > 0 {
		add(true, "gpu_hour_cost", number(c.HourCost))
	}
	add(true, "keep", optional(c.Keep))
	add(true, "audit_keep", duration(c.AuditKeep))
	add(true, "log_level", strings.ToLower(c.LogLevel.String()))
	add(true, "hosts", strings.Join(c.Hosts, " "))
	c.Services.settings(add)
	c.atStart(add, optional(c.SampleEvery))
	return list
}

// atStart adds the settings that take effect when the daemon starts. Of the certificate only its presence
// counts: the paths of its files may change.
func (c *Serve) atStart(add func(live bool, key, value string), sample string) {
	add(true, "tls.cert", c.Cert)
	add(true, "tls.key", c.Key)
	add(false, "tls", tlsText(c))
	if c.Insecure {
		add(false, "insecure", "true")
	}
	add(false, "listen", cmp.Or(c.Listen, "127.0.0.1:8765 or the next free port"))
	add(false, "socket", c.Socket)
	add(false, "state", c.State)
	add(false, "checkpoint_dir", c.Checkpoints)
	add(false, "gpus", c.GPUs)
	if c.CPUs > 0 {
		add(false, "cpus", strconv.Itoa(c.CPUs))
	}
	add(false, "sample_every", sample)
	add(false, "traffic", c.Traffic)
	if c.Links != nil {
		add(false, "network.hosts", strings.Join(c.Links.Hosts, " "))
		add(false, "network.links", linksText(c.Links))
	}
	add(false, "network.interface", c.Network.Interface)
	for i := range c.Network.Classes {
		add(false, "network.classes."+strconv.Itoa(i+1), c.Network.Classes[i].text())
	}
	add(false, "sharing.shares", c.Sharing.Shares)
	add(false, "sharing.mig", c.Sharing.MIG)
	add(false, "sharing.mps_program", c.Sharing.Program)
	add(false, "sharing.over_memory", c.Sharing.OverMemory)
	if c.Sharing.MinSpeed > 0 {
		add(false, "sharing.min_speed", number(float64(c.Sharing.MinSpeed)/perf.Million))
	}
}

// KeepStart copies from a running configuration the settings that take effect only when the daemon starts.
func (c *Serve) KeepStart(running *Serve) {
	if tlsText(c) != tlsText(running) {
		c.Cert, c.Key, c.SelfSigned = running.Cert, running.Key, running.SelfSigned
	}
	c.State, c.Socket, c.GPUs, c.CPUs = running.State, running.Socket, running.GPUs, running.CPUs
	c.SampleEvery, c.Listen, c.Insecure, c.Sharing = running.SampleEvery, running.Listen, running.Insecure,
		running.Sharing
	c.Network, c.Links, c.Traffic = running.Network, running.Links, running.Traffic
	keys := c.Services.Keys
	c.Services = running.Services
	c.Services.Keys = keys
}

func tlsText(c *Serve) string {
	switch {
	case c.Cert != "":
		return "with a certificate"
	case c.SelfSigned:
		return "self-signed"
	}
	return "no"
}

// Compare lists what differs between two configurations.
func Compare(old, now *Serve) (list []Change) {
	was, is := old.Settings(), now.Settings()
	find := func(in []Setting, key string) int {
		return slices.IndexFunc(in, func(s Setting) bool { return s.Key == key })
	}
	for _, s := range is {
		i := find(was, s.Key)
		switch {
		case i < 0:
			list = append(list, Change{s.Key, "", s.Value, s.Live})
		case was[i].Value != s.Value:
			list = append(list, Change{s.Key, was[i].Value, s.Value, s.Live})
		}
	}
	for _, s := range was {
		if find(is, s.Key) < 0 {
			list = append(list, Change{s.Key, s.Value, "", s.Live})
		}
	}
	if tlsText(old) != tlsText(now) { // the certificate's files belong to it
		for i := range list {
			list[i].Live = list[i].Live && !strings.HasPrefix(list[i].Key, "tls.")
		}
	}
	return list
}

// words collects the fields of an entry that have a value.
type words []string

func (w *words) add(key, value string) {
	if value != "" {
		*w = append(*w, key+" "+value)
	}
}

func (w *words) number(key string, v int64) {
	if v != 0 {
		w.add(key, strconv.FormatInt(v, 10))
	}
}

func (w *words) gpus(key string, v cluster.Milli) {
	if v > 0 {
		w.add(key, number(float64(v)/float64(cluster.Whole)))
	}
}

// atMost is like gpus, for amounts that are unlimited by default.
func (w *words) atMost(key string, v cluster.Milli) {
	if v != cluster.Unlimited {
		w.add(key, number(float64(v)/float64(cluster.Whole)))
	}
}

// text is never empty: an entry without fields still exists.
func (w words) text() string {
	if len(w) == 0 {
		return "(nothing)"
	}
	return strings.Join(w, ", ")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func queueText(q *cluster.Queue) string {
	var w words
	w.add("below", q.Parent)
	w.gpus("guarantee", q.Guarantee)
	w.atMost("limit", q.Limit)
	w.atMost("lend", q.Lend)
	if q.Weight != 0 {
		w.add("weight", number(float64(q.Weight)/1000))
	}
	w.gpus("reserve", q.Reserve)
	if q.NoReclaim {
		w = append(w, "no_reclaim")
	}
	w.gpus("user_gpus", q.UserGPUs)
	w.number("max_jobs", int64(q.MaxJobs))
	w.number("user_jobs", int64(q.UserJobs))
	w.number("budget", q.Budget)
	if q.Period > 0 {
		w.add("period", cluster.FormatDuration(q.Period))
	}
	w.number("shares", q.Shares)
	w.number("priority", q.Priority)
	for i := range q.Windows {
		w.add("window", windowText(&q.Windows[i]))
	}
	return w.text()
}

func windowText(v *cluster.Window) string {
	days := ""
	for i, name := range dayNames {
		if v.Days>>i&1 == 1 {
			days += name + " "
		}
	}
	w := words{fmt.Sprintf("%s%s-%s", days, clockText(v.From), clockText(v.To))}
	w.atMost("guarantee", v.Guarantee)
	w.atMost("limit", v.Limit)
	return strings.Join(w, " ")
}

func clockText(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

func partitionText(p *cluster.Partition) string {
	var w words
	if p.Default {
		w = append(w, "default")
	}
	w.add("nodes", strings.Join(p.Nodes, " "))
	if p.MaxTime > 0 {
		w.add("max_time", cluster.FormatDuration(p.MaxTime))
	}
	if p.DefaultTime > 0 {
		w.add("default_time", cluster.FormatDuration(p.DefaultTime))
	}
	w.number("max_gpus", int64(p.MaxGPUs))
	w.add("queues", strings.Join(p.Queues, " "))
	for _, t := range p.Tiers {
		w.add("tier", t.String())
	}
	w.number("priority_tier", p.PriorityTier)
	return w.text()
}

// PerfText describes a table, and how far its estimates are off.
func PerfText(t *perf.Table) string {
	text := fmt.Sprintf("%d job models on GPU models, %d distances, %d pairs, %d scales", len(t.Speed), len(t.Distance),
		len(t.Pairs), len(t.Scale))
	if t.Slicing != nil {
		text += fmt.Sprintf(", %d duties", len(t.Slicing.Duty))
	}
	for _, e := range []struct {
		what string
		of   perf.Error
		unit string
	}{{"speeds", t.Speeds, " of them"}, {"pairs", t.Beside, ""}} {
		if e.of.Filled > 0 && e.of.Known == 0 {
			text += fmt.Sprintf("; %d %s are estimated, which cannot be checked: too few are known",
				e.of.Filled, e.what)
		} else if e.of.Filled > 0 {
			text += fmt.Sprintf("; %d %s are estimated, as known ones would be off by %.2f%s in the mean, by less than %.2f in 19 of 20",
				e.of.Filled, e.what, e.of.Mean, e.unit, e.of.P95)
		}
	}
	return text + waysText(t)
}

// waysText describes the ways in which pairs were estimated, and how far each is off.
func waysText(t *perf.Table) (text string) {
	for _, c := range []struct {
		what string
		of   func(*perf.PairError) *perf.Error
	}{{"of job models with a known pair", func(e *perf.PairError) *perf.Error { return &e.Pairs }},
		{"of job models without a known pair", func(e *perf.PairError) *perf.Error { return &e.Models }}} {
		filled, ways := 0, ""
		for i := range t.Ways {
			e := c.of(&t.Ways[i])
			if filled += e.Filled; e.Filled > 0 || e.Known > 0 {
				ways += fmt.Sprintf(", %d by %s", e.Filled, t.Ways[i].Way)
			}
			if e.Known > 0 {
				ways += fmt.Sprintf(" (off by %.2f)", e.Mean)
			}
		}
		if filled > 0 {
			text += "; pairs " + c.what + ": " + ways[2:]
		}
	}
	return text
}

func idleText(i *Idle) string {
	w := words{"below " + number(i.Below) + "%"}
	for _, s := range []struct {
		name string
		d    time.Duration
	}{{"warn", i.Warn}, {"demote", i.Demote}, {"stop", i.Stop}} {
		if s.d > 0 {
			w.add(s.name, cluster.FormatDuration(s.d))
		}
	}
	if i.Requeue {
		w = append(w, "requeue")
	}
	var spared []string
	for _, t := range i.Tiers {
		spared = append(spared, t.String())
	}
	for _, k := range i.Kinds {
		spared = append(spared, k.String())
	}
	w.add("except", strings.Join(append(spared, i.Queues...), " "))
	return w.text()
}

func peopleText(p People) string {
	var w words
	w.add("users", strings.Join(p.Users, " "))
	w.add("groups", strings.Join(p.Groups, " "))
	if len(w) == 0 {
		return "nobody"
	}
	return strings.Join(w, "; ")
}
