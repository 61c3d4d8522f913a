//go:build linux

package local

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reading are methods of what is stored of a job that change nothing.
var reading = []string{"Restarts", "savesText", "IdleStage", "EndsIdle", "backHours", "Sub", "Elements"}

// What is stored of a job is changed by Own alone, and what an element of an array has of its own is never read
// where it is shared: else a change of one element would be one of all, or one element would pass for another.
func TestOwn(t *testing.T) {
	fset := token.NewFileSet()
	own, _ := filepath.Glob("*.go")
	room, _ := filepath.Glob("record/*.go")
	uses := 0
	for _, name := range append(own, room...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok &&
				slices.Contains([]string{"Own", "Whole", "shares", "plain", "Read"}, f.Name.Name) {
				continue
			}
			eachInfo(d, func(path []string, parent ast.Node, at ast.Expr) {
				uses++
				if why := misuse(path, parent, at); why != "" {
					t.Errorf("%s: %s", fset.Position(at.Pos()), why)
				}
			})
		}
	}
	if uses < 100 {
		t.Errorf("only %d uses of what is stored of a job were found", uses)
	}
}

// eachInfo finds the uses of a job's info: what is selected of it, and by what.
func eachInfo(in ast.Node, f func(path []string, parent ast.Node, at ast.Expr)) {
	var above []ast.Node
	ast.Inspect(in, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		above = append(above, n)
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Info" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "record" {
			return true // the type
		}
		if x, ok := s.X.(*ast.SelectorExpr); ok && x.Sel.Name == "Log" {
			return true
		}
		var path []string
		var at ast.Expr = s
		i := len(above) - 2
	climb:
		for ; i >= 0; i-- {
			switch p := above[i].(type) {
			case *ast.SelectorExpr:
				path = append(path, p.Sel.Name)
				at = p
			case *ast.IndexExpr:
				if p.X != at {
					break climb
				}
				at = p
			case *ast.ParenExpr:
				at = p
			default:
				break climb
			}
		}
		f(path, above[i], at)
		return true
	})
}

// misuse says what is wrong with a use; "": nothing.
func misuse(path []string, parent ast.Node, at ast.Expr) string {
	if len(path) == 0 {
		return "handed on as it is: what gets it may change it, or take an element for another; use Whole or Own"
	}
	if path[0] == "Index" || path[0] == "Record" && (len(path) == 1 || path[1] == "Spec") {
		return "each element has its own: use the job's Index, Spec or Whole"
	}
	switch p := parent.(type) {
	case *ast.AssignStmt:
		if slices.Contains(p.Lhs, at) {
			return "changed without Own"
		}
	case *ast.IncDecStmt:
		return "changed without Own"
	case *ast.UnaryExpr:
		if p.Op == token.AND {
			return "its address is taken: what has it may change it"
		}
	case *ast.CallExpr:
		if p.Fun == at && !slices.Contains(reading, path[len(path)-1]) {
			return "a method of which it is not known that it changes nothing"
		}
	}
	return ""
}
