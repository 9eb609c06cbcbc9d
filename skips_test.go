package forebay

import (
	"bufio"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLongTests finds the tests that skip themselves or do less under -short, as make test and make
// race run them, and asserts that .ci/long-tests names each, since make test-all runs those in
// full.
func TestLongTests(t *testing.T) {
	listed := longTests(t)
	var dirs []string
	for _, file := range goFiles(t) {
		if dir := filepath.Dir(file); strings.HasSuffix(file, "_test.go") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	found := 0
	for _, dir := range dirs {
		for _, name := range changedByShort(t, dir) {
			found++
			if test := path.Join("forebay", dir) + " " + name; !listed[test] {
				t.Errorf("%s skips itself or does less under -short: add it to .ci/long-tests", test)
			}
		}
	}
	if found < len(listed)/2 {
		t.Errorf("%d tests that depend on -short were found, %d are listed", found, len(listed))
	}
}

// longTests reads .ci/long-tests: a package and a test a line, subtests without their names.
func longTests(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open(".ci/long-tests")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	listed := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		pkg, name, ok := strings.Cut(s.Text(), " ")
		if ok && pkg != "#" {
			name, _, _ = strings.Cut(name, "/")
			listed[pkg+" "+name] = true
		}
	}
	return listed
}

// changedByShort returns the names of the tests in dir that depend on -short, themselves or in a
// function that they call by name.
func changedByShort(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	skips, calls := map[string]bool{}, map[string][]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if constrained(file) {
			continue
		}
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv != nil || d.Body == nil {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.IfStmt:
					skips[d.Name.Name] = skips[d.Name.Name] || ifShort(n)
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok {
						calls[d.Name.Name] = append(calls[d.Name.Name], id.Name)
					}
				}
				return true
			})
		}
	}
	for again := true; again; {
		again = false
		for name, callees := range calls {
			if !skips[name] && slices.ContainsFunc(callees, func(c string) bool { return skips[c] }) {
				skips[name], again = true, true
			}
		}
	}
	var tests []string
	for name, s := range skips {
		if s && strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	return tests
}

// constrained reports whether a file needs a tag that make race does not set.
func constrained(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil {
				return !expr.Eval(func(tag string) bool { return tag == "linux" || tag == "unix" || tag == "race" })
			}
		}
	}
	return false
}

// ifShort reports whether n is if testing.Short() { … }.
func ifShort(n *ast.IfStmt) bool {
	cond, ok := n.Cond.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := cond.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Short"
}
