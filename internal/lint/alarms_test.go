package lint

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Beyond these an alarm is raised: columns of a line, with tabs of four; fields and methods of a type.
const maxColumns, maxFields, maxMethods = 120, 30, 60

// largeTypes may have more fields or methods, each for a reason.
var largeTypes = map[string]string{
	"ask.Submission":                 "a field per thing that a job may ask for",
	"cluster.Job":                    "a field per thing that a job may ask for",
	"cmd/muster.simFlags":            "a field per flag",
	"config.Serve":                   "a field per key of the configuration",
	"config.serveFile":               "a field per key of the configuration",
	"engine.Engine":                  "one state machine: what happens to a job, in the rooms of which it is made (ARCHITECTURE.md)",
	"experiments/compat.coneProgram": "the vectors of an interior-point method, allocated once",
	"kube.Driver":                    "one loop: what needs gangs, pods, nodes and the engine at once stays in it (ARCHITECTURE.md)",
	"kube.Options":                   "a field per thing that can be configured or replaced in tests",
	"kube/gang.Gang":                 "what every room of the driver knows of a gang",
	"local/record.Info":              "a field per fact about a job that the engine does not have",
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
			t.Errorf("%s has %d fields and %d methods: it is no exception any more (largeTypes)", name, fields[name],
				methods[name])
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

var alignment = regexp.MustCompile(`(\S) {2,}`)

// TestColumns: no line has more than 120 columns, unless a string literal of more than half of them, the alignment of
// a column, or a word for another tool makes it so.
func TestColumns(t *testing.T) {
	_, files := load(t)
	for _, f := range files {
		src, err := os.ReadFile(filepath.Join("..", "..", f.path))
		if err != nil {
			t.Fatal(err)
		}
		may := linesWithText(src)
		for i, line := range strings.Split(string(src), "\n") {
			line = alignment.ReplaceAllString(line, "$1 ")
			if n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); n > maxColumns && !may[i+1] {
				t.Errorf("%s:%d has %d columns; at most %d", f.path, i+1, n, maxColumns)
			}
		}
	}
}

// linesWithText returns the lines with a literal of more than half of the columns, of a literal that spans lines, or
// with a comment that is for another tool.
func linesWithText(src []byte) map[int]bool {
	fset, lines := token.NewFileSet(), map[int]bool{}
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for pos, tok, text := s.Scan(); tok != token.EOF; pos, tok, text = s.Scan() {
		spans := strings.Count(text, "\n")
		switch {
		case tok == token.STRING && (spans > 0 || utf8.RuneCountInString(text) > maxColumns/2),
			tok == token.COMMENT && (strings.Contains(text, "#nosec") || strings.HasPrefix(text, "//nolint") ||
				strings.HasPrefix(text, "//go:")):
			for i := range spans + 1 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
	return lines
}

// TestHeaders: the header of an if defines at most two values, or assigns one: more are lines of their own.
func TestHeaders(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			i, ok := n.(*ast.IfStmt)
			if !ok {
				return true
			}
			a, ok := i.Init.(*ast.AssignStmt)
			if ok && (len(a.Rhs) > 2 || len(a.Rhs) > 1 && a.Tok == token.ASSIGN) {
				t.Errorf("%s: %d values in the header of an if: write a line each", fset.Position(i.Pos()), len(a.Rhs))
			}
			return true
		})
	}
}
