package lint

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write testdata/alarms.txt: how much of what raises an alarm each package has")

// Beyond these an alarm is raised: columns of a line, with tabs of four; fields and methods of a type.
const maxColumns, maxFields, maxMethods = 120, 30, 60

// largeTypes may have more fields or methods, each for a reason.
var largeTypes = map[string]string{
	"ask.Submission":                 "a field per thing that a job may ask for",
	"cluster.Job":                    "a field per thing that a job may ask for",
	"cmd/muster.simFlags":            "a field per flag",
	"config.Serve":                   "a field per key of the configuration",
	"config.serveFile":               "a field per key of the configuration",
	"engine.Engine":                  "one state machine; its rooms are being moved out (ARCHITECTURE.md)",
	"engine/job.State":               "what is known of a job: the record and what is derived from it",
	"experiments/compat.coneProgram": "the vectors of an interior-point method, allocated once",
	"kube.Driver":                    "one loop; its rooms are being moved out (ARCHITECTURE.md)",
	"kube.Options":                   "a field per thing that can be configured or replaced in tests",
	"kube.gang":                      "what every room of the driver knows of a gang",
	"local.Info":                     "a field per fact about a job that the engine does not have",
	"local.Machine":                  "one loop, to which all state of a machine belongs",
	"report.Summary":                 "a field per figure",
	"show.Job":                       "a field per thing that is shown of a job",
	"sim.World":                      "the world of a replay: each field is one thing that the engine does not see",
	"slurm.jsonJob":                  "a field per field of Slurm's JSON",
	"trace.SynthSpec":                "a field per setting of an invented workload",
}

// TestLargeTypes: a type that owns everything should be split into rooms.
func TestLargeTypes(t *testing.T) {
	fset, files := load(t)
	methods, fields, at := map[string]int{}, map[string]int{}, map[string]token.Pos{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[f.pkg+"."+receiver(d.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					ts, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if st, ok := ts.Type.(*ast.StructType); ok {
						name := f.pkg + "." + ts.Name.Name
						fields[name], at[name] = countFields(st), ts.Pos()
					}
				}
			}
		}
	}
	for name, pos := range at {
		large := fields[name] > maxFields || methods[name] > maxMethods
		switch reason := largeTypes[name]; {
		case large && reason == "":
			t.Errorf("%s: %s has %d fields and %d methods; beyond %d and %d it needs a reason (largeTypes), or a part of it is a type of its own",
				fset.Position(pos), name, fields[name], methods[name], maxFields, maxMethods)
		case !large && reason != "":
			t.Errorf("%s has %d fields and %d methods: it is no exception any more (largeTypes)", name, fields[name], methods[name])
		}
	}
	for name := range largeTypes {
		if _, ok := at[name]; !ok {
			t.Errorf("largeTypes names %s, which is not there", name)
		}
	}
}

func countFields(st *ast.StructType) (n int) {
	for _, f := range st.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// TestAlarms: no package gets more lines over 120 columns, or more statements with several values in the header
// of an if, than testdata/alarms.txt records. Existing ones go as their lines are touched; then run with
// -update.
func TestAlarms(t *testing.T) {
	const file = "testdata/alarms.txt"
	_, files := load(t)
	long, hidden := map[string]int{}, map[string]int{}
	for _, f := range files {
		src, err := os.ReadFile(filepath.Join("..", "..", f.path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(src), "\n") {
			if utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > maxColumns {
				long[f.pkg]++
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if i, ok := n.(*ast.IfStmt); ok {
				if a, ok := i.Init.(*ast.AssignStmt); ok && len(a.Rhs) > 1 {
					hidden[f.pkg]++
				}
			}
			return true
		})
		long[f.pkg] += 0 // the package is known
	}
	if *update {
		var lines []string
		for pkg, n := range long {
			if n+hidden[pkg] > 0 {
				lines = append(lines, fmt.Sprintf("%s %d %d", pkg, n, hidden[pkg]))
			}
		}
		sort.Strings(lines)
		text := "# package, lines over 120 columns, if headers with several values\n" + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	known, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer known.Close()
	mayLong, mayHidden := map[string]int{}, map[string]int{}
	for sc := bufio.NewScanner(known); sc.Scan(); {
		var pkg string
		var l, h int
		if _, err := fmt.Sscan(sc.Text(), &pkg, &l, &h); err == nil {
			mayLong[pkg], mayHidden[pkg] = l, h
		}
	}
	for pkg := range long {
		if long[pkg] > mayLong[pkg] {
			t.Errorf("%s has %d lines over %d columns; it had %d (%s)", pkg, long[pkg], maxColumns, mayLong[pkg], file)
		}
		if hidden[pkg] > mayHidden[pkg] {
			t.Errorf("%s has %d if headers with several values; it had %d (%s): write a line each", pkg, hidden[pkg], mayHidden[pkg], file)
		}
	}
}
