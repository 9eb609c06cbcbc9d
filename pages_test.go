package forebay_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesNameCode: places in the code that docs/tour.md and CONTRIBUTING.md name exists.
func TestPagesNameCode(t *testing.T) {
	t.Parallel()
	c := newCode()
	for _, page := range []struct {
		file, section string // section "": all of it
		least         int    // names, so that a page that is no longer understood fails
	}{
		{"docs/tour.md", "", 100},
		{"CONTRIBUTING.md", "## Where to begin", 50},
		{"CONTRIBUTING.md", "## Adding a backing store", 10},
	} {
		text, err := os.ReadFile(page.file)
		if err != nil {
			t.Fatal(err)
		}
		_, from, ok := strings.Cut(string(text), page.section)
		if !ok {
			t.Errorf("%s has no section %q", page.file, page.section)
		}
		if page.section != "" {
			from, _, _ = strings.Cut(from, "\n## ")
		}
		names, wrong := c.check(from)
		for _, why := range wrong {
			t.Errorf("%s: %s", page.file, why)
		}
		if names < page.least {
			t.Errorf("%s names code %d times, fewer than %d: is it read as it is written?", page.file, names, page.least)
		}
	}
}

// TestPageNames: a name that does not exist is found out, and one that exists is not.
func TestPageNames(t *testing.T) {
	t.Parallel()
	c := newCode()
	for _, x := range []struct {
		text string
		ok   bool
	}{
		{"`client/file.go`", true},
		{"`client/fiel.go`", false},
		{"`flusher/plan` and `flusher`", true},
		{"`flusher/plans`", false},
		{"`File.Write` (`client/file.go`)", true},
		{"`File.Write` (`client/buffer.go`)", false},
		{"`File.Wriet` (`client/file.go`)", false},
		{"1. `client/file.go`\n   goes on: `File.Write`", true},
		{"1. `client/file.go`\n2. `File.Write`", false}, // another item
		{"`plan.Next`", true},
		{"`plan.Nxet`", false},
		{"`backing.Writer.Put`", true},
		{"`Writer.Put` of `flusher/backing`", true}, // a method of an interface
		{"`Options.Catalog` of `flusher`", true},    // a field
		{"`slurm/lua/burst_buffer.lua`: `slurm_bb_setup`", true},
		{"`slurm/lua/burst_buffer.lua`: `slurm_bb_setpu`", false},
		{"`dirty`", false},
		{"`make generate` and `bbctl status`", true},
		{"`x = 1`", false},
	} {
		if _, wrong := c.check(x.text); (len(wrong) == 0) != x.ok {
			t.Errorf("%q: %v", x.text, wrong)
		}
	}
}

var (
	pageBlock   = regexp.MustCompile(`(?m)^(?:\s*$|\s*[-*] |\s*\d+\. |\||#)`) // beginnings of items, rows, paragraphs
	pageSpan    = regexp.MustCompile("`([^`]+)`")
	pageCommand = regexp.MustCompile(`^(?:make|bbctl|bbd) `)
	pagePath    = regexp.MustCompile(`^[\w.-]+(?:/[\w.-]+)+$|^[\w-]+\.(?:go|md)$`)
	pageName    = regexp.MustCompile(`^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2}$`)
)

// code finds out which names the tree has. It reads only the requested files.
type code struct {
	packages map[string][]string        // by name: folders with that name
	declared map[string]map[string]bool // by file or folder: Func, Type, Type.Method, Type.Field
}

func newCode() *code { return &code{declared: make(map[string]map[string]bool)} }

// check counts the names in code spans of a page, and returns their faults. A span is a command,
// the path of a file or folder, or a name that a file, a folder or a package that the same item
// names declares.
func (c *code) check(text string) (names int, wrong []string) {
	starts := pageBlock.FindAllStringIndex(text, -1)
	for i := 0; i <= len(starts); i++ {
		from, to := 0, len(text)
		if i > 0 {
			from = starts[i-1][0]
		}
		if i < len(starts) {
			to = starts[i][0]
		}
		n, w := c.checkItem(text[from:to])
		names, wrong = names+n, append(wrong, w...)
	}
	return names, wrong
}

func (c *code) checkItem(text string) (names int, wrong []string) {
	var paths, others []string
	for _, m := range pageSpan.FindAllStringSubmatch(text, -1) {
		switch s := m[1]; {
		case pageCommand.MatchString(s):
			continue
		case pagePath.MatchString(s) || isFolder(s):
			if _, err := os.Stat(s); err != nil {
				wrong = append(wrong, fmt.Sprintf("there is no %s", s))
				continue
			}
			paths = append(paths, s)
		case pageName.MatchString(s):
			others = append(others, s)
		default:
			wrong = append(wrong, fmt.Sprintf("%s is no command, path or name: write it as text", s))
		}
		names++
	}
	for _, name := range others {
		if !c.exists(name, paths) {
			wrong = append(wrong, fmt.Sprintf("nothing that its item names declares %s: %s", name, strings.Join(paths, ", ")))
		}
	}
	return names, wrong
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// exists reports whether one of the paths declares a name, or the package that it begins with.
func (c *code) exists(name string, paths []string) bool {
	for _, p := range paths {
		if c.of(p)[name] {
			return true
		}
	}
	of, rest, _ := strings.Cut(name, ".")
	if rest == "" {
		return false
	}
	for _, p := range c.folders(of) {
		if c.of(p)[rest] {
			return true
		}
	}
	return false
}

// folders returns the folders whose last element is a name.
func (c *code) folders(name string) []string {
	if c.packages == nil {
		c.packages = make(map[string][]string)
		_ = filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil
			}
			if strings.HasPrefix(e.Name(), ".") && path != "." || e.Name() == "testdata" || path == "sdk" {
				return filepath.SkipDir
			}
			c.packages[e.Name()] = append(c.packages[e.Name()], path)
			return nil
		})
	}
	return c.packages[name]
}

// of returns the declarations of a file, or the files of a folder but for its tests.
func (c *code) of(path string) map[string]bool {
	if c.declared[path] == nil {
		found := make(map[string]bool)
		c.declared[path] = found
		files := []string{path}
		if isFolder(path) {
			files, _ = filepath.Glob(filepath.Join(path, "*.go"))
		}
		for _, file := range files {
			switch {
			case !strings.HasSuffix(file, ".go"):
				text, _ := os.ReadFile(file)
				for _, word := range regexp.MustCompile(`\w+`).FindAllString(string(text), -1) {
					found[word] = true
				}
			case file == path || !strings.HasSuffix(file, "_test.go"):
				declarations(file, found)
			}
		}
	}
	return c.declared[path]
}

// declarations adds the declarations of a file.
func declarations(file string, found map[string]bool) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return // the build reports it
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if of := receiver(d); of != "" {
				found[of+"."+d.Name.Name] = true
			} else {
				found[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				declareSpec(s, found)
			}
		}
	}
}

func declareSpec(s ast.Spec, found map[string]bool) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			found[name.Name] = true
		}
	case *ast.TypeSpec:
		found[s.Name.Name] = true
		var fields *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			fields = t.Fields
		case *ast.InterfaceType:
			fields = t.Methods
		default:
			return
		}
		for _, f := range fields.List {
			for _, name := range f.Names {
				found[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}
