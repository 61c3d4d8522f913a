package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
)

var sacctmgrOptions = []option{
	{name: "associations", short: 's'},
	{name: "help", short: 'h'},
	{name: "immediate", short: 'i'},
	{name: "noheader", short: 'n'},
	{name: "oneliner", short: 'o', use: warned, note: "a line each is what there is"},
	{name: "parsable", short: 'p'},
	{name: "parsable2", short: 'P'},
	{name: "quiet", short: 'Q'},
	{name: "readonly", short: 'r'},
	{name: "usage"},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
}

const sacctmgrHelp = `Usage: sacctmgr [-n] [-p|-P] show ENTITY [where] [FIELD=VALUE[,VALUE...]]... [format=FIELD[%WIDTH],...]

  account       the queues
  user          who has or had jobs, and each one's queue
  association   queues, and who uses which (where: account= user=)
  qos           the tiers
  cluster       this service

It changes nothing: queues, and who may use them, are in the configuration (docs/reference/queues.md).
`

// entities are the words that show accepts, the full name first.
var entities = [][]string{{"account", "accounts", "acct"}, {"association", "associations", "assoc", "assocs"},
	{"user", "users"}, {"qos"}, {"cluster", "clusters"}}

// entity is a line of any of sacctmgr's tables.
type entity struct {
	api.Queue         // of an account, and of a user in one
	user, name, about string
	rank              int
}

// sacctmgr shows queues as accounts and tiers as qualities of service. It changes nothing.
func (c *command) sacctmgr() (int, error) {
	s, rest, err := c.options(sacctmgrOptions, false)
	if err != nil {
		return 1, err
	}
	c.warn(s.warnings)
	switch {
	case s.has("version"):
		c.printf("%s\n", version)
		return 0, nil
	case s.has("help"), s.has("usage"), len(rest) == 0, strings.EqualFold(rest[0], "help"):
		c.printf("%s", sacctmgrHelp)
		return 0, nil
	}
	switch verb := strings.ToLower(rest[0]); verb {
	case "show", "list":
	case "add", "create", "delete", "remove", "modify", "dump", "load", "reconfigure", "archive", "clear":
		return 1, fmt.Errorf("%s is not supported: queues, and who may use them, are in the configuration of muster serve (docs/reference/queues.md; muster config reload applies changes); sacctmgr show shows them", verb)
	case "version":
		c.printf("%s\n", version)
		return 0, nil
	default:
		return 1, fmt.Errorf("invalid keyword: %w",
			cluster.Unknown("verb", verb, []string{"show", "list", "help", "version"}))
	}
	if len(rest) < 2 {
		return 1, fmt.Errorf("show what? %s", entityNames())
	}
	kind := ""
	for _, names := range entities {
		if slices.Contains(names, strings.ToLower(rest[1])) {
			kind = names[0]
		}
	}
	if kind == "" {
		return 1, fmt.Errorf("show %s is not supported: there is no such thing here; there are %s", rest[1],
			entityNames())
	}
	return 0, c.entities(&s, kind, rest[2:])
}

func entityNames() string {
	names := make([]string, len(entities))
	for i := range entities {
		names[i] = entities[i][0]
	}
	return strings.Join(names, ", ")
}

// entities prints one of the tables.
func (c *command) entities(s *settings, kind string, words []string) error {
	format := map[string]string{"account": "Account,Descr,Org", "user": "User,Def Acct,Admin",
		"association": "Cluster,Account,User,Partition,Share,GrpTRES,MaxJobs,QOS,Def QOS",
		"qos":         "Name,Priority,Preempt,PreemptMode,Flags",
		"cluster":     "Cluster,ControlHost,ControlPort,RPC,Share,QOS,Def QOS"}[kind]
	var users, accounts, names []string
	with := s.has("associations")
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		list := strings.Split(value, ",")
		switch key = strings.ToLower(key); {
		case !ok && key == "where", !ok && key == "withdeleted", !ok && key == "tree", !ok && key == "wolimits":
		case !ok && strings.HasPrefix(key, "withassoc"):
			with = true
		case !ok:
			names = append(names, strings.Split(w, ",")...)
		case strings.HasPrefix("format", key):
			format = value
		case key == "user" || key == "users":
			users = userNames(list)
		case key == "account" || key == "accounts" || key == "acct":
			accounts = list
		case key == "name" || key == "names":
			names = list
		case strings.HasPrefix(key, "cluster"):
			if !slices.Contains(list, "muster") {
				return says("there is one cluster here, muster")
			}
		default:
			return fmt.Errorf("unknown condition: %s: there are user=, account=, name=, cluster= and format=", w)
		}
	}
	if kind == "user" && with && !strings.Contains(strings.Join(words, " "), "ormat") {
		format = "User,Def Acct,Admin,Cluster,Account,Partition,Share,QOS"
	}
	cols, err := acctColumns(renamed(format), entityFields())
	if err != nil {
		return err
	}
	rows, err := c.entityRows(kind, with)
	if err != nil {
		return err
	}
	in := func(list []string, of string) bool { return len(list) == 0 || slices.Contains(list, of) }
	rows = slices.DeleteFunc(rows, func(e entity) bool {
		own := e.name
		if kind == "user" {
			own = e.user
		}
		return !in(users, e.user) || !in(accounts, e.Name) || !in(names, own)
	})
	c.printf("%s", acctText(s, nil, cols, rows))
	return nil
}

// renamed replaces alternative names of fields.
func renamed(format string) string {
	parts := strings.Split(format, ",")
	for i, p := range parts {
		name, width, _ := strings.Cut(strings.TrimSpace(p), "%")
		if other := map[string]string{"defaultaccount": "Def Acct", "defacct": "Def Acct", "defaultacct": "Def Acct",
			"adminlevel": "Admin", "description": "Descr", "organization": "Org", "fairshare": "Share",
			"defaultqos": "Def QOS", "defqos": "Def QOS", "parentname": "Par Name", "parent": "Par Name",
			"qoslevel": "QOS", "accounts": "Account", "users": "User",
			"names": "Name"}[strings.ToLower(name)]; other != "" {
			if parts[i] = other; width != "" {
				parts[i] += "%" + width
			}
		}
	}
	return strings.Join(parts, ",")
}

// entityRows are the lines of a table before any condition.
func (c *command) entityRows(kind string, each bool) ([]entity, error) {
	switch kind {
	case "qos":
		return []entity{{name: "critical", about: "best-effort,standard", rank: 2},
			{name: "standard", about: "best-effort", rank: 1}, {name: "best-effort"}}, nil
	case "cluster":
		return []entity{{name: "muster"}}, nil
	}
	queues, err := c.svc.Queues()
	if err != nil {
		return nil, err
	}
	if kind == "account" {
		var out []entity
		for _, q := range queues {
			out = append(out, entity{Queue: q, name: q.Name})
		}
		return out, nil
	}
	members, err := c.usersOf(queues)
	if err != nil {
		return nil, err
	}
	var out []entity
	if kind == "association" {
		out = append(out, entity{Queue: api.Queue{Name: "root", Limit: -1, Share: 1}, name: "root"})
	}
	seen := map[string]bool{}
	for _, q := range queues {
		if kind == "association" {
			out = append(out, entity{Queue: q, name: q.Name})
		}
		for _, u := range members[q.Name] {
			if kind == "association" || each || !seen[u] {
				out = append(out, entity{Queue: q, name: q.Name, user: u})
			}
			seen[u] = true
		}
	}
	if kind == "user" {
		slices.SortStableFunc(out, func(a, b entity) int { return cmp.Compare(a.user, b.user) })
	}
	return out, nil
}

// usersOf are the users of each queue: those with usage, or with a job of the last month. Queues get their
// configured shares.
func (c *command) usersOf(queues []api.Queue) (map[string][]string, error) {
	fair, err := c.svc.Fair()
	if err != nil {
		return nil, err
	}
	now := c.svc.Now()
	jobs, err := c.svc.History(now.AddDate(0, -1, 0), now)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	add := func(queue, user string) {
		if queue = cmp.Or(queue, noQueue); user != "" && !slices.Contains(out[queue], user) {
			out[queue] = append(out[queue], user)
		}
	}
	for i := range fair.Shares {
		s := &fair.Shares[i]
		if k := slices.IndexFunc(queues, func(q api.Queue) bool { return q.Name == s.Queue }); k >= 0 && s.User == "" {
			queues[k].Share = s.Shares
		}
		add(s.Queue, s.User)
	}
	for i := range jobs {
		add(jobs[i].Submission.Queue, jobs[i].User)
	}
	for _, users := range out {
		slices.Sort(users)
	}
	return out, nil
}

// gpuText is an amount of milli-GPU as a TRES; negative: no limit.
func gpuText(milli int64) string {
	if milli < 0 {
		return ""
	}
	return "gres/gpu=" + strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}

func text(get func(e entity) string) func(*view, entity) string {
	return func(_ *view, e entity) string { return get(e) }
}

// entityFields are the fields of all of sacctmgr's tables.
var entityFields = sync.OnceValue(func() []acctField[entity] {
	return []acctField[entity]{
		{"Account", 10, false, text(func(e entity) string { return e.Name })},
		{"Admin", 9, false, text(func(e entity) string { return "None" })},
		{"Cluster", 10, false, text(func(e entity) string { return "muster" })},
		{"ControlHost", 15, false, text(func(entity) string { return hostName() })},
		{"ControlPort", 12, false, text(func(entity) string { return "0" })},
		{"Def Acct", 10, false, text(func(e entity) string { return e.Name })},
		{"Def QOS", 9, false, text(func(entity) string { return "standard" })},
		{"Descr", 20, false, text(func(e entity) string { return e.Name })},
		{"Flags", 20, false, text(func(entity) string { return "" })},
		{"GraceTime", 10, false, text(func(entity) string { return "" })},
		{"GrpTRES", 13, false, text(func(e entity) string {
			if e.user != "" {
				return ""
			}
			return gpuText(e.Limit)
		})},
		{"MaxJobs", 7, false, text(func(entity) string { return "" })},
		{"MaxTRES", 13, false, text(func(entity) string { return "" })},
		{"MaxWall", 11, false, text(func(entity) string { return "" })},
		{"Name", 10, false, text(func(e entity) string { return e.name })},
		{"Org", 20, false, text(func(e entity) string { return cmp.Or(e.Parent, "root") })},
		{"Par Name", 10, false, text(func(e entity) string {
			if e.user != "" || e.name == "root" {
				return ""
			}
			return cmp.Or(e.Parent, "root")
		})},
		{"Partition", 10, false, text(func(entity) string { return "" })},
		{"Preempt", 20, false, text(func(e entity) string { return e.about })},
		{"PreemptMode", 11, false, text(func(e entity) string {
			if e.name == "critical" {
				return "off" // it is never preempted
			}
			return "requeue"
		})},
		{"Priority", 10, false, text(func(e entity) string { return strconv.Itoa(e.rank) })},
		{"QOS", 29, false, text(func(entity) string { return strings.Join(slices.Sorted(slices.Values(tiers)), ",") })},
		{"RPC", 5, false, text(func(entity) string { return "0" })},
		{"Share", 9, false, text(func(e entity) string {
			if e.user != "" {
				return "1"
			}
			return strconv.FormatInt(max(1, e.Share), 10)
		})},
		{"User", 10, false, text(func(e entity) string { return e.user })},
	}
})
