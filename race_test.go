package forebay

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNoRace holds that each package that .ci/no-race keeps from the race detector has a reason,
// since its tests start processes of the product, or nothing in it, in its tests and in their
// imports of this module starts a goroutine.
func TestNoRace(t *testing.T) {
	listed := noRace(t)
	if len(listed) == 0 {
		t.Error("no package is listed")
	}
	c := &concurrency{t: t, dirs: map[string]*folder{}}
	for _, pkg := range listed {
		dir := strings.TrimPrefix(pkg, module)
		if tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go")); len(tests) == 0 {
			t.Errorf("%s has no tests, or is gone: remove it from .ci/no-race", pkg)
			continue
		}
		if c.startsProcesses(dir) {
			continue
		}
		if where := c.goroutine(dir); where != "" {
			t.Errorf("%s starts goroutines (%s): remove it from .ci/no-race", pkg, where)
		}
	}
}

// TestGoroutineIsFound finds the goroutines of packages that certainly start some: themselves, in
// their imports, and in tests.
func TestGoroutineIsFound(t *testing.T) {
	c := &concurrency{t: t, dirs: map[string]*folder{}}
	for _, dir := range []string{"bbd", "bbd/rpc", "flusher", "client/admin", "cmd/bbctl/copying"} {
		if c.goroutine(dir) == "" {
			t.Errorf("%s starts no goroutine", dir)
		}
	}
	if c.startsProcesses("bbd") || !c.startsProcesses("cmd/bbd") {
		t.Error("the tests of cmd/bbd start processes, those of bbd do not")
	}
}

// noRace reads .ci/no-race: a package a line.
func noRace(t *testing.T) (listed []string) {
	t.Helper()
	f, err := os.Open(".ci/no-race")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			listed = append(listed, line)
		}
	}
	return listed
}

// concurrency finds where packages start goroutines.
type concurrency struct {
	t    *testing.T
	dirs map[string]*folder
}

// folder has the properties of a package's files, and those of its tests' files besides.
type folder struct {
	imports, testImports []string // folders of this module
	starts, testStarts   string   // where a goroutine is started; "": nowhere
}

// startsProcesses reports whether a package's tests start the product's programs.
func (c *concurrency) startsProcesses(dir string) bool {
	const daemons = "internal/bbdtest"
	return dir == daemons || slices.Contains(c.folder(dir).testImports, daemons)
}

// goroutine returns where a package, its tests, or their imports start a goroutine, or "" if nowhere.
func (c *concurrency) goroutine(dir string) string {
	f := c.folder(dir)
	if f.testStarts != "" {
		return f.testStarts
	}
	seen := map[string]bool{}
	for queue := append([]string{dir}, f.testImports...); len(queue) > 0; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		f := c.folder(queue[0])
		if f.starts != "" {
			return f.starts
		}
		queue = append(queue, f.imports...)
	}
	return ""
}

func (c *concurrency) folder(dir string) *folder {
	if f := c.dirs[dir]; f != nil {
		return f
	}
	f := &folder{}
	c.dirs[dir] = f
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		imports, starts := &f.imports, &f.starts
		if strings.HasSuffix(path, "_test.go") {
			imports, starts = &f.testImports, &f.testStarts
		}
		for _, spec := range file.Imports {
			if name, _ := strconv.Unquote(spec.Path.Value); strings.HasPrefix(name, module) {
				*imports = append(*imports, strings.TrimPrefix(name, module))
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil && startsGoroutine(n) {
				*starts = fset.Position(n.Pos()).String()
			}
			return true
		})
	}
	return f
}

// concurrent names functions, and libraries' methods, that run code beside their caller's.
var concurrent = []string{"AfterFunc", "Go", "ListenAndServe", "NewServer", "Parallel", "RunParallel", "Serve"}

// startsGoroutine reports whether a node is a go statement or a call that amounts to one.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(concurrent, sel.Sel.Name)
	}
	return false
}
