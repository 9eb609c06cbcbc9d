package forebay_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// counted are nouns that messages count.
const counted = `files|flushes|calls|requests|nodes|buffers|jobs|entries|names|writers|readers|findings|directories|folders|objects|` +
	`transactions|tasks|servers|daemons|leases|sessions|links|lines|attempts|tries|operations|changes|events|hosts|users|copies|reasons|` +
	`stages|contexts|retries|regions|segments|extents|uploads|pieces|others|tests|packages|keys|records`

// uncounted matches a literal that puts a number before a plural by itself. After a bound
// ("at most", "more than") and in "3 of %d files" the plural is right.
var (
	uncounted = regexp.MustCompile(`%d (?:[a-z]+ )?(?:` + counted + `)\b`)
	bound     = regexp.MustCompile(`(?:\bof|at most|more than|fewer than|at least|\bto|the other|the first) $`)
)

// TestCountsAgree: counts read "1 file" and "2 files", by bb.Count.
func TestCountsAgree(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != "." || e.Name() == "testdata" || uncountedDir(path)) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Error(err)
			}
			for _, at := range uncounted.FindAllStringIndex(text, -1) {
				if !bound.MatchString(text[:at[0]]) {
					t.Errorf("%v: %q: count with bb.Count", files.Position(lit.Pos()), text[at[0]:at[1]])
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// uncountedDir reports whether no user reads the output of a folder's programs. They are of tests
// and measurements. Package rdma imports nothing of ours.
func uncountedDir(path string) bool {
	return strings.HasSuffix(path, "test") || path == "rdma" || path == "tools" || path == "cmd/demo" || strings.HasPrefix(path, "cmd/bbbench") || path == "scripts"
}

var (
	citedContract = regexp.MustCompile(`\(contract (\d+)([a-z]?)`)
	saidContract  = regexp.MustCompile(`(?m)^(?:\s+- )?(\d+)([a-z]?)\. `)
)

// TestContractsExist: a comment cites a contract by a number that docs/contracts.md has.
func TestContractsExist(t *testing.T) {
	text, err := os.ReadFile("docs/contracts.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, m := range saidContract.FindAllStringSubmatch(string(text), -1) {
		said[m[1]+m[2]] = true
	}
	cited := 0
	err = filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != "." {
			return cmp.Or(err, filepath.SkipDir)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range citedContract.FindAllStringSubmatch(string(source), -1) {
			cited++
			if !said[m[1]+m[2]] {
				t.Errorf("%s: docs/contracts.md has no contract %s", path, m[1]+m[2])
			}
		}
		return err
	})
	if err != nil || cited == 0 {
		t.Errorf("%d contracts are cited: %v", cited, err)
	}
}
