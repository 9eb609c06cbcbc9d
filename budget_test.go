package forebay_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The budgets of packages, functions and types. Tests, generated code and test support are not counted.
const (
	maxPackageLines  = 2000
	maxFunctionLines = 80
	maxStructFields  = 20
)

// over is a figure that a name may have beyond its budget.
type over struct {
	figure int
	reason string
}

// overBudget lists the names beyond their budgets, and why each of them is. A figure only shrinks. The test
// fails when one here is larger than it has to be. Lines of packages are rounded up to the next hundred.
var overBudget = map[string]over{
	"lines of bbd/store":           {6400, "segments, leases, index and recovery share one order of locks, which a cut would spread"},
	"lines of flusher":             {2500, "one state machine under one lock: files, attempts, holds and drains change each other"},
	"struct bbd/status.Buffer":     {23, "a record, a field for each stored or printed value"},
	"struct bbd.Config":            {24, "options, a field for each setting"},
	"struct flusher.BufferStats":   {24, "a record, a field for each stored or printed value"},
	"struct flusher.Options":       {25, "options, a field for each setting"},
	"struct internal/bb.Buffer":    {25, "a record, a field for each stored or printed value"},
	"struct internal/bb.Entry":     {23, "a record, a field for each stored or printed value"},
	"struct internal/bb.Operation": {26, "a record, a field for each stored or printed value"},
	"struct internal/bb.Lifetime":  {33, "a record, a field for each stored or printed value"},

	"struct cmd/bbctl/buffers.bufferJSON": {21, "a record, a field for each stored or printed value"},
}

// TestBudgets compares the tree with the budgets. A package over its budget is cut into packages
// with one purpose. An exported function with a bool gets options, or becomes two functions.
func TestBudgets(t *testing.T) {
	found := map[string]int{}
	for path, file := range sources(t) {
		countFile(found, path, file)
	}
	for name, n := range found {
		if strings.HasPrefix(name, "lines of ") {
			found[name] = (n + 99) / 100 * 100
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		n := found[name]
		allowed, listed := overBudget[name]
		switch budget := budgetOf(name); {
		case listed && allowed.reason == "":
			t.Errorf("%s: overBudget has no reason for it", name)
		case n <= budget && listed:
			t.Errorf("%s: %d, within the budget of %d: remove it from overBudget", name, n, budget)
		case n <= budget:
		case !listed:
			t.Errorf("%s: %d, the budget is %d", name, n, budget)
		case n > allowed.figure:
			t.Errorf("%s: %d, overBudget allows %d", name, n, allowed.figure)
		case n < allowed.figure:
			t.Errorf("%s: %d, lower its figure in overBudget from %d", name, n, allowed.figure)
		}
	}
	for name := range overBudget {
		if _, ok := found[name]; !ok {
			t.Errorf("%s: remove it from overBudget, it is gone", name)
		}
	}
}

func budgetOf(name string) int {
	switch what, _, _ := strings.Cut(name, " "); what {
	case "lines":
		return maxPackageLines
	case "function":
		return maxFunctionLines
	case "struct":
		return maxStructFields
	}
	return 0
}

type source struct {
	files *token.FileSet
	file  *ast.File
}

// sources parses the files that the budgets are about.
func sources(t *testing.T) map[string]source {
	all := map[string]source{}
	files := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != "." || e.Name() == "testdata" || path == "tools") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || testSupport(filepath.Dir(path)) {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil && !ast.IsGenerated(file) {
			all[path] = source{files, file}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// testSupport reports whether a package is imported by tests alone.
func testSupport(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return strings.HasSuffix(name, "test") })
}

func countFile(found map[string]int, path string, s source) {
	dir := filepath.ToSlash(filepath.Dir(path))
	found["lines of "+dir] += s.files.File(s.file.Pos()).LineCount()
	lines := func(n ast.Node) int { return s.files.Position(n.End()).Line - s.files.Position(n.Pos()).Line + 1 }
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found["function "+dir+"."+funcName(d)] = lines(d)
			if d.Name.IsExported() && exportedReceiver(d) && takesBool(d.Type) {
				found["bool parameter of "+dir+"."+funcName(d)] = 1
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					if fields, ok := spec.Type.(*ast.StructType); ok {
						found["struct "+dir+"."+spec.Name.Name] = fieldsOf(fields)
					}
				}
			}
		}
	}
}

func funcName(d *ast.FuncDecl) string {
	if r := receiver(d); r != "" {
		return r + "." + d.Name.Name
	}
	return d.Name.Name
}

// receiver returns the name of a method's type, or "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", x)
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool { return d.Recv == nil || ast.IsExported(receiver(d)) }

func takesBool(f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		id, ok := p.Type.(*ast.Ident)
		return ok && id.Name == "bool"
	})
}

// fieldsOf counts the fields of a struct. A struct inside it is one.
func fieldsOf(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += cmp.Or(len(f.Names), 1)
	}
	return n
}

// TestPackageComments: the comment of each package names a boundary in a sentence with "must never". A reader
// learns from it what does not belong there.
func TestPackageComments(t *testing.T) {
	comments := map[string]string{}
	for path, s := range sources(t) {
		comments[filepath.ToSlash(filepath.Dir(path))] += strings.Join(strings.Fields(s.file.Doc.Text()), " ")
	}
	if len(comments) < 100 {
		t.Fatalf("only %d packages were found", len(comments))
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		if !strings.Contains(comments[dir], "must never") {
			t.Errorf("%s: its package comment has no boundary: %q", dir, comments[dir])
		}
	}
}
