// Package lint has the house rules that a test can check: which package may import which, banned calls, sizes,
// documentation.
package lint

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/muster-gpu/muster/"

// arrows lists what each package may import of this module. Arrows point
// downward only; a package that is not listed may not exist.
var arrows = map[string]string{
	"cluster":             "",
	"quota":               "cluster",
	"perf":                "cluster solve",
	"power":               "cluster",
	"engine":              "cluster quota internal/heap engine/admission engine/check engine/found engine/lending engine/limits engine/links engine/loans engine/past engine/plan engine/running network/traffic engine/order engine/inventory engine/shape engine/job engine/sched engine/placement engine/speed engine/preempt engine/defrag engine/explain engine/words engine/reserve engine/pending",
	"engine/admission":    "cluster engine/inventory engine/job engine/limits engine/placement engine/reserve engine/shape engine/sched engine/words",
	"engine/check":        "cluster engine/explain engine/inventory engine/job engine/limits engine/pending engine/placement engine/plan engine/sched",
	"engine/defrag":       "cluster engine/inventory engine/job engine/limits engine/order engine/plan engine/preempt engine/reserve engine/running engine/placement engine/sched engine/shape engine/words",
	"engine/explain":      "cluster engine/inventory engine/job engine/lending engine/limits engine/links engine/loans engine/order engine/pending engine/placement engine/plan engine/preempt engine/reserve engine/running engine/sched engine/shape engine/speed engine/words",
	"engine/found":        "cluster engine/admission engine/inventory engine/job engine/pending engine/placement engine/plan engine/running engine/sched",
	"engine/inventory":    "cluster",
	"engine/job":          "cluster quota engine/inventory engine/order",
	"engine/lending":      "cluster quota engine/inventory engine/job engine/shape",
	"engine/limits":       "cluster quota engine/job engine/lending engine/order engine/sched",
	"engine/links":        "cluster engine/inventory engine/job network network/flow network/traffic",
	"engine/order":        "cluster",
	"network":             "cluster internal/splitmix",
	"network/flow":        "cluster internal/splitmix network",
	"network/traffic":     "cluster network network/flow internal/splitmix",
	"engine/loans":        "cluster engine/inventory engine/job engine/sched",
	"engine/past":         "cluster engine/job engine/sched",
	"engine/pending":      "cluster engine/inventory engine/job engine/order engine/sched engine/shape internal/heap",
	"engine/placement":    "cluster engine/inventory engine/job engine/lending engine/links engine/order engine/sched engine/shape engine/speed network/traffic",
	"engine/plan":         "cluster engine/admission engine/inventory engine/job engine/order engine/sched",
	"engine/preempt":      "cluster quota engine/inventory engine/job engine/limits engine/order engine/placement engine/sched engine/shape engine/speed",
	"engine/reserve":      "cluster engine/inventory engine/job engine/order engine/placement engine/sched engine/shape",
	"engine/running":      "cluster engine/job engine/order engine/pending engine/preempt engine/sched",
	"engine/sched":        "cluster quota engine/inventory engine/job engine/order engine/shape",
	"engine/speed":        "cluster engine/inventory engine/job engine/sched",
	"engine/shape":        "cluster engine/inventory",
	"engine/words":        "cluster engine/inventory engine/shape",
	"forward":             "cluster engine internal/heap internal/splitmix",
	"solve":               "internal/heap",
	"search":              "internal/splitmix",
	"gateway":             "internal/token gateway/http1 serving/batch serving/tally cluster",
	"gateway/http1":       "",
	"requests":            "cluster internal/heap internal/random internal/unpack",
	"service":             "cluster serving/llm",
	"serving/llm":         "cluster",
	"serving/batch":       "cluster internal/knobs",
	"serving/scale":       "cluster internal/knobs perf service serving serving/inss serving/llm serving/nexus serving/tally",
	"serving/tally":       "",
	"serving/memory":      "",
	"serving/bulk":        "gateway",
	"serving/load":        "requests service serving/tally",
	"serving/control":     "ask cluster config gateway service serving/llm serving/memory serving/scale serving/tally show",
	"serving/machine":     "ask cluster gateway local local/account local/watch service serving/control serving/scale show",
	"serving/inss":        "cluster learn service solve",
	"serving/nexus":       "cluster service",
	"serving/fleet":       "cluster internal/heap requests service serving/batch serving/llm serving/tally",
	"serving":             "cluster internal/heap internal/csvfile",
	"learn":               "internal/splitmix",
	"policy":              "learn cluster quota solve engine/sched internal/heap",
	"place":               "learn cluster engine/placement internal/splitmix",
	"config":              "internal/token network network/traffic ask cluster show perf engine policy place requests service serving/batch serving/llm serving/scale engine/sched",
	"journal":             "cluster engine config internal/oldkeys",
	"ask":                 "cluster perf internal/plain",
	"show":                "ask",
	"api":                 "ask show",
	"slurm":               "cluster ask show api internal/plain",
	"client":              "api show internal/frames internal/plain",
	"client/tcp":          "client",
	"client/terminal":     "client",
	"slurm/remote":        "api client client/terminal slurm",
	"search/play":         "cluster search search/tuner sim",
	"search/tuner":        "ask api client cluster config search show",
	"store":               "ask internal/oldkeys",
	"local/shim":          "internal/frames local/cgroup/spawn",
	"local/gpu":           "cluster",
	"local/cgroup":        "local/cgroup/spawn",
	"local/cgroup/spawn":  "",
	"local/evidence":      "store",
	"local/foresight":     "cluster engine forward show ask store",
	"local/demojobs":      "ask cluster",
	"local/account":       "local/cgroup/spawn local/evidence",
	"local/after":         "ask cluster show",
	"local/audit":         "show store",
	"local/clock":         "cluster",
	"local/dscp":          "local/cgroup",
	"local/traffic":       "cluster network local/dscp show",
	"local/devices":       "cluster config engine local/gpu show store",
	"local/record":        "ask cluster engine progress show store local/account local/evidence local/observe local/run local/segment engine/job",
	"local/segment":       "ask cluster engine internal/oldkeys journal store",
	"local/watch":         "cluster",
	"local/rules":         "ask cluster config engine perf show store local/account local/observe",
	"local/share":         "ask cluster local/shim perf show",
	"local/run":           "ask cluster engine progress show local/shim local/cgroup local/evidence",
	"local/observe":       "ask cluster config local/cgroup local/gpu show store",
	"progress":            "ask show cluster perf engine engine/job",
	"local/replicas":      "cluster engine perf show local/record",
	"local":               "cluster perf progress engine forward driver config journal ask show store local/account local/after local/audit local/clock local/demojobs local/devices local/dscp local/rules local/shim local/gpu local/cgroup local/cgroup/spawn local/evidence local/foresight local/observe local/record local/replicas local/run local/segment local/share local/traffic local/watch internal/inbox internal/plain internal/oldkeys",
	"server":              "cluster ask show api local local/account local/audit local/rules local/run local/segment store internal/frames internal/token web server/view service serving/control",
	"server/view":         "cluster show api",
	"web":                 "internal/plot",
	"driver":              "cluster engine ask show",
	"driver/drivertest":   "cluster engine driver internal/shared policy place",
	"trace":               "cluster internal/unpack internal/random",
	"report":              "cluster internal/plot",
	"tune":                "cluster engine journal perf policy trace report",
	"tune/guard":          "ask cluster journal report show sim trace tune",
	"sim":                 "network network/flow network/traffic engine/links forward learn search cluster perf power engine policy place driver trace report internal/heap requests service serving/fleet serving/scale serving/tally engine/inventory engine/sched",
	"scenario":            "network/traffic cluster perf engine policy place driver trace report sim config journal quota",
	"experiments":         "experiments/results",
	"experiments/results": "cluster perf engine policy place driver trace report sim experiments/compat config requests service serving internal/csvfile internal/heap serving/batch serving/inss serving/llm serving/nexus serving/scale network network/flow network/traffic",
	"experiments/compat":  "cluster engine policy place driver trace solve serving/llm network network/flow network/traffic internal/splitmix engine/sched",
	"kube":                "cluster perf progress power quota config engine driver journal ask show internal/inbox kube/amount kube/areas kube/books kube/confirm kube/fit kube/fit/claims kube/fit/shared kube/fit/volumes kube/gang kube/gangs kube/gpus kube/history kube/holds kube/loans kube/look kube/mig kube/moves kube/nodes kube/notices kube/patch kube/places kube/plans kube/power kube/queues kube/reader kube/relocations kube/reports kube/setaside kube/succession kube/terms kube/traffic kube/turns kube/victims kube/watch kube/write internal/oldkeys internal/kubeapi",
	"kube/agent":          "config kube/seals kube/terms local/dscp internal/kubeapi",
	"kube/amount":         "cluster",
	"kube/areas":          "cluster kube/fit kube/gpus",
	"kube/books":          "cluster driver engine kube/gang kube/gpus kube/look kube/nodes kube/notices kube/reports kube/terms show",
	"kube/confirm":        "cluster engine kube/nodes",
	"kube/fit":            "cluster kube/amount kube/gpus kube/patch",
	"kube/fit/claims":     "cluster kube/amount kube/fit kube/fit/shared kube/gpus kube/patch kube/retry internal/kubeapi",
	"kube/fit/shared":     "cluster kube/fit kube/gpus",
	"kube/fit/volumes":    "cluster kube/amount kube/fit kube/retry internal/kubeapi",
	"kube/gang":           "cluster engine show kube/areas kube/fit kube/fit/claims kube/gangs kube/gpus kube/holds kube/look kube/mig kube/moves kube/nodes kube/notices kube/places kube/plans kube/reports kube/succession kube/terms kube/traffic",
	"kube/gangs":          "cluster",
	"kube/gpus":           "cluster kube/amount",
	"kube/history":        "cluster engine kube/queues",
	"kube/holds":          "cluster engine",
	"kube/look":           "ask cluster engine kube/patch kube/queues progress show",
	"kube/mig":            "cluster config engine kube/amount kube/fit kube/gpus kube/holds kube/patch kube/terms",
	"kube/moves":          "cluster driver engine kube/gangs kube/holds kube/nodes kube/succession show internal/kubeapi",
	"kube/nodes":          "cluster engine kube/amount kube/fit kube/gpus kube/holds kube/loans kube/mig kube/power engine/inventory",
	"kube/notices":        "cluster kube/patch internal/kubeapi",
	"kube/patch":          "",
	"kube/places":         "cluster engine kube/holds kube/nodes kube/plans",
	"kube/plans":          "cluster engine internal/oldkeys kube/patch kube/terms",
	"kube/power":          "cluster power kube/gpus kube/patch kube/terms",
	"kube/queues":         "cluster config quota",
	"kube/reader":         "cluster engine kube/areas kube/fit kube/fit/claims kube/fit/shared kube/fit/volumes kube/gang kube/gangs kube/gpus kube/holds kube/nodes kube/queues kube/terms",
	"kube/relocations":    "ask cluster driver engine kube/fit kube/gang kube/gangs kube/look kube/moves kube/nodes kube/succession kube/terms show",
	"kube/reports":        "cluster engine progress show",
	"kube/retry":          "",
	"kube/seals":          "kube/terms",
	"kube/services":       "cluster config kube/gpus kube/notices kube/patch kube/services/load kube/terms service serving/llm serving/scale serving/tally internal/kubeapi",
	"kube/services/load":  "service serving/llm serving/memory serving/tally",
	"kube/terms":          "cluster config perf kube/fit/shared kube/gangs kube/gpus kube/queues",
	"kube/setaside":       "",
	"kube/turns":          "",
	"kube/victims":        "cluster kube/areas kube/fit",
	"kube/segments":       "engine journal",
	"kube/succession":     "cluster kube/fit kube/plans",
	"kube/traffic":        "cluster config kube/terms",
	"kube/watch":          "kube/fit/volumes kube/gangs kube/mig kube/queues kube/retry internal/kubeapi",
	"kube/write":          "kube/fit/claims kube/fit/volumes kube/patch kube/retry internal/kubeapi",
	"kube/kubetest":       "perf",
	"kube/lead":           "internal/kubeapi",
	"kube/loans":          "cluster engine kube/gpus kube/patch kube/terms",
	"kube/front":          "api kube/seals server/view web internal/kubeapi",
	"cmd/muster":          "network network/traffic learn progress search search/play search/tuner cluster quota perf engine policy place journal config driver trace report sim tune tune/guard scenario serving ask show api client client/tcp client/terminal local local/account local/demojobs local/devices local/rules local/shim local/gpu local/cgroup local/observe server store slurm slurm/remote internal/plain internal/version requests service serving/bulk serving/control serving/inss serving/load serving/machine serving/scale serving/tally",
	"cmd/muster-kube":     "cluster config engine journal kube kube/agent kube/front kube/lead kube/look kube/segments kube/services kube/services/load place policy progress server/view trace web api internal/version internal/kubeapi",
	"cmd/muster-shim":     "local/shim internal/version",
	"cmd/muster-gateway":  "gateway internal/version",
	"cmd/muster-slurm":    "client slurm slurm/remote internal/version",
	"internal/shared":     "",
	"internal/plot":       "",
	"internal/browser":    "",
	"internal/heap":       "",
	"internal/splitmix":   "",
	"internal/knobs":      "cluster",
	"internal/random":     "",
	"internal/token":      "",
	"internal/unpack":     "",
	"internal/csvfile":    "",
	"internal/inbox":      "",
	"internal/frames":     "",
	"internal/oldkeys":    "",
	"internal/netlab":     "cluster network network/flow",
	"internal/plain":      "",
	"internal/version":    "",
	"internal/lint":       "",
	"internal/kubedemo":   "internal/controlplane internal/controlplane/binaries internal/kubeapi",

	"deploy":                         "", // manifests and their tests
	"internal/controlplane":          "internal/controlplane/binaries internal/shared internal/kubeapi",
	"internal/controlplane/binaries": "internal/shared", // builds the nested modules beside it
	"internal/kubeapi":               "",
	"internal/fakekube":              "internal/kubeapi",
}

// pure packages import the standard library and each other only, and have neither clock nor randomness.
var pure = map[string]bool{"cluster": true, "quota": true, "engine": true, "engine/defrag": true,
	"engine/explain": true, "engine/links": true, "engine/inventory": true, "engine/job": true, "engine/order": true,
	"engine/pending": true, "engine/placement": true, "engine/preempt": true, "engine/reserve": true,
	"engine/sched": true, "engine/shape": true, "engine/speed": true, "engine/words": true, "engine/lending": true,
	"engine/limits": true, "engine/loans": true, "engine/found": true,
	"engine/past": true, "engine/admission": true, "engine/plan": true, "engine/check": true, "engine/running": true,
	"policy": true, "place": true, "perf": true, "forward": true, "solve": true, "search": true, "power": true,
	"learn": true, "service": true, "serving/llm": true, "serving/batch": true, "serving/scale": true,
	"serving/inss": true, "serving/nexus": true, "network": true, "network/flow": true, "network/traffic": true}

// banned calls per package: "*" is everywhere outside tests.
var banned = map[string]string{
	"time.Now": "time is an argument", "time.Since": "time is an argument", "time.Sleep": "nothing waits by the clock",
	"time.After": "nothing waits by the clock",
}

// live packages wait for the real world, but are given the time, too.
var (
	live = map[string]bool{"local": true, "local/run": true, "local/share": true, "local/shim": true,
		"local/gpu": true, "server": true, "server/view": true, "client": true, "serving/control": true,
		"serving/bulk": true, "serving/load": true}
	waits = map[string]bool{"time.Sleep": true, "time.After": true}
)

// clockAllowed are files that measure wall time for people, or wait for programs in tests.
var clockAllowed = map[string]bool{"experiments/main.go": true, "internal/controlplane/plane.go": true,
	"internal/netlab/job.go": true,
	"cmd/muster/main.go":     true, "cmd/muster/serve.go": true, "cmd/muster-shim/main.go": true,
	"cmd/muster-slurm/main.go": true, "cmd/muster-kube/main.go": true,
	"cmd/muster-gateway/main.go": true}

// Beyond these a function or a file deserves another look: they are no targets, and nothing is split only to
// satisfy them.
const maxFunc, maxFile = 100, 1000

type file struct {
	pkg, path string
	test      bool
	ast       *ast.File
	lines     int
}

// source is the whole repository, read once for all tests.
var source = sync.OnceValues(func() (*sourceFiles, error) {
	all := &sourceFiles{fset: token.NewFileSet()}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" ||
			d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(all.fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		all.files = append(all.files, file{pkg: filepath.ToSlash(filepath.Dir(rel)), path: rel,
			test: strings.HasSuffix(rel, "_test.go"), ast: f, lines: strings.Count(string(src), "\n")})
		return nil
	})
	return all, err
})

type sourceFiles struct {
	fset  *token.FileSet
	files []file
}

func load(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	all, err := source()
	if err != nil {
		t.Fatal(err)
	}
	if len(all.files) < 50 {
		t.Fatalf("only %d Go files found: the walk is broken", len(all.files))
	}
	return all.fset, all.files
}

func TestArrows(t *testing.T) {
	_, files := load(t)
	for _, f := range files {
		allowed, ok := arrows[f.pkg]
		if !ok {
			t.Errorf("%s: package %s is not in the list of arrows", f.path, f.pkg)
			continue
		}
		if f.test {
			continue
		}
		may := map[string]bool{}
		for _, p := range strings.Fields(allowed) {
			may[p] = true
		}
		for _, im := range f.ast.Imports {
			p, _ := strconv.Unquote(im.Path.Value)
			inner, own := strings.CutPrefix(p, module)
			switch {
			case own && !may[inner]:
				t.Errorf("%s imports %s: that arrow does not point down", f.path, inner)
			case !own && pure[f.pkg] && strings.Contains(strings.Split(p, "/")[0], "."):
				t.Errorf("%s imports %s: %s keeps to the standard library", f.path, p, f.pkg)
			case pure[f.pkg] && (p == "math/rand" || p == "math/rand/v2" || p == "log" || p == "log/slog" ||
				p == "os" || p == "sync"):
				t.Errorf("%s imports %s: no chance, log, I/O or goroutine in %s", f.path, p, f.pkg)
			}
		}
	}
}

// allGroups are packages that have, or import, the types of every group of the Kubernetes API.
var allGroups = regexp.MustCompile(`^k8s\.io/(client-go/(kubernetes|applyconfigurations|discovery|informers|` +
	`dynamic/dynamicinformer|tools/leaderelection)|component-helpers/storage/volume)(/|$)`)

// goList asks go about packages of this module, and all that they import.
func goList(env []string, args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, said.String())
	}
	return string(out), nil
}

// TestClients: what links every group of the Kubernetes API is not used, in tests or through other packages either: it
// takes longer to compile than most of Muster. internal/kubeapi has the rest.
func TestClients(t *testing.T) {
	_, files := load(t)
	for _, f := range files {
		for _, im := range f.ast.Imports {
			p, _ := strconv.Unquote(im.Path.Value)
			if allGroups.MatchString(p) {
				t.Errorf("%s imports %s, which links all groups of the API: use internal/kubeapi or kube/lead", f.path, p)
			}
		}
	}
	out, err := goList(nil, "-test", "-f", "{{.ImportPath}} {{range .Imports}}{{.}} {{end}}", "./...")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		p, imports, _ := strings.Cut(line, " ")
		if i := slices.IndexFunc(strings.Fields(imports), allGroups.MatchString); i >= 0 && !allGroups.MatchString(p) {
			t.Errorf("%s imports %s, which links all groups of the API", p, strings.Fields(imports)[i])
		}
	}
}

// TestSmallProgram: Slurm's commands, which scripts start by the thousand, contain nothing that is slow to
// initialise.
func TestSmallProgram(t *testing.T) {
	out, err := goList([]string{"CGO_ENABLED=0"}, "./cmd/muster-slurm")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Fields(out) {
		if p == "net" || p == "regexp" || p == "unique" || strings.HasPrefix(p, "net/") ||
			strings.HasPrefix(p, "crypto/") {
			t.Errorf("muster-slurm holds %s: go list -deps says through which package", p)
		}
	}
}

// wholePrograms are calls that eventually look up methods by name: if one is reachable, the linker keeps every
// exported method of every type, which makes muster-kube half as large again.
var wholePrograms = map[string]bool{
	"SetVersionTemplate": true, "SetUsageTemplate": true, "SetHelpTemplate": true, "MethodByName": true,
}

func TestLinkedMethods(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || !strings.HasPrefix(f.pkg, "cmd") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && wholePrograms[sel.Sel.Name] {
				at := fset.Position(n.Pos())
				t.Errorf("%s: %s makes the linker keep every method of every type", at, sel.Sel.Name)
			}
			return true
		})
	}
}

func TestBannedCalls(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || clockAllowed[f.path] {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok {
				name := id.Name + "." + sel.Sel.Name
				if why, bad := banned[name]; bad && !(live[f.pkg] && waits[name]) {
					t.Errorf("%s: %s is banned: %s", fset.Position(n.Pos()), name, why)
				}
				if id.Name == "rand" && globalRand[sel.Sel.Name] {
					t.Errorf("%s: %s is banned: chance comes from a seeded source", fset.Position(n.Pos()), name)
				}
			}
			return true
		})
		if pure[f.pkg] {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: no goroutines in %s", fset.Position(g.Pos()), f.pkg)
				}
				return true
			})
		}
	}
}

var globalRand = map[string]bool{"Int": true, "IntN": true, "Intn": true, "Float64": true, "Perm": true,
	"Shuffle": true,
	"Int63":   true, "Int64": true, "Uint64": true, "ExpFloat64": true, "NormFloat64": true, "N": true}

func TestSizes(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.lines > maxFile {
			t.Errorf("%s has %d lines; at most %d", f.path, f.lines, maxFile)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if n > maxFunc && !f.test {
				t.Errorf("%s: %s has %d lines; at most %d", fset.Position(fn.Pos()), fn.Name.Name, n, maxFunc)
			}
		}
	}
}

func TestExportedAreDocumented(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && !obvious(d) {
					t.Errorf("%s: exported %s is not documented", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
						t.Errorf("%s: exported type %s is not documented", fset.Position(ts.Pos()), ts.Name.Name)
					}
				}
			}
		}
	}
}

// obvious methods need no comment: they implement well-known interfaces.
func obvious(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "String", "Name", "Traits", "Error", "Key":
		return d.Recv != nil
	}
	return d.Recv != nil && len(d.Recv.List) == 1 && !ast.IsExported(receiver(d.Recv.List[0].Type))
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.IndexExpr:
		return receiver(e.X)
	}
	return ""
}

// TestNoMapOrder type-checks the deciding packages and forbids ranging over a
// map there: Go's order of maps is random. A loop that only collects keys, and
// sorts them in the next statement, is marked "// sorted below".
func TestNoMapOrder(t *testing.T) {
	fset, _ := load(t)
	for _, p := range typed(t) {
		for _, f := range p.files {
			marked := map[int]bool{}
			for _, g := range f.Comments {
				for _, c := range g.List {
					if strings.Contains(c.Text, "sorted below") || strings.Contains(c.Text, "order does not matter") {
						marked[fset.Position(c.Pos()).Line] = true
					}
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				r, ok := n.(*ast.RangeStmt)
				if !ok {
					return true
				}
				if _, isMap := p.info.Types[r.X].Type.Underlying().(*types.Map); isMap &&
					!marked[fset.Position(r.Pos()).Line] {
					t.Errorf("%s: a map is ranged over; its order is random", fset.Position(r.Pos()))
				}
				return true
			})
		}
	}
}

// checked is a deciding package with the types of its expressions.
type checked struct {
	name  string
	files []*ast.File
	info  *types.Info
}

// deciding is the deciding packages by name, type-checked once for all tests.
var deciding = sync.OnceValues(func() (list []checked, err error) {
	all, err := source()
	if err != nil {
		return nil, err
	}
	byPkg := map[string][]*ast.File{}
	for _, f := range all.files {
		if pure[f.pkg] && !f.test {
			byPkg[f.pkg] = append(byPkg[f.pkg], f.ast)
		}
	}
	names := slices.Sorted(maps.Keys(byPkg))
	compiled, err := exports(names)
	if err != nil {
		return nil, err
	}
	conf := types.Config{Importer: importer.ForCompiler(all.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(compiled[path])
	})}
	for _, name := range names {
		p := checked{name: name, files: byPkg[name], info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
		if _, err := conf.Check(module+name, all.fset, p.files, p.info); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, p)
	}
	return list, nil
})

// exports are the files with what packages of this module, and all that these import, offer to others: by the path of
// the package. They are compiled if they are not yet.
func exports(names []string) (map[string]string, error) {
	args := []string{"-export", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	out, err := goList(nil, args...)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, nil
}

func typed(t *testing.T) []checked {
	t.Helper()
	list, err := deciding()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Training and inference must give the same bits everywhere: where the machine can multiply and add in one
// instruction, a compiler may fuse what is not rounded first. So each product in learn is converted (float64(x*y)),
// unless it is multiplied or divided further.
func TestNothingFused(t *testing.T) {
	fset, _ := load(t)
	list := typed(t)
	learn := list[slices.IndexFunc(list, func(p checked) bool { return p.name == "learn" })]
	info := learn.info
	products := 0
	for _, f := range learn.files {
		safe := map[ast.Expr]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if len(n.Args) == 1 && info.Types[n.Fun].IsType() {
					safe[n.Args[0]] = true
				}
			case *ast.ParenExpr:
				safe[n.X] = safe[n]
			case *ast.BinaryExpr:
				if n.Op == token.MUL || n.Op == token.QUO {
					safe[n.X], safe[n.Y] = true, true
				}
				if of := info.Types[n]; n.Op == token.MUL && of.Value == nil && floating(of.Type) {
					if products++; !safe[n] {
						t.Errorf("%s: a product may be added unrounded: write float64(x*y)", fset.Position(n.Pos()))
					}
				}
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && floating(info.Types[n.Lhs[0]].Type) {
					t.Errorf("%s: a product may be added unrounded: write x = float64(x*y)", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if products < 50 {
		t.Errorf("%d products found: this looks at too little", products)
	}
}

func floating(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsFloat != 0
}
