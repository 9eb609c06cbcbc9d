// Package directivetest reads the scripts that parsers of directives are tested with, for the one in Go
// and the one in Lua. It must never interpret a script.
package directivetest

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"forebay/slurm/directive"
)

// Script is the input of a parser, at a site with these options.
type Script struct {
	Text    string
	Options directive.Options
}

// visible are replacements for invisible characters in the scripts of testdata.
var visible = strings.NewReplacer("⇥", "\t", "␍", "\r", "␈", "\b", "␠", " ")

// Read returns the script of an entry of testdata.
func Read(t testing.TB, d *datadriven.TestData) Script {
	t.Helper()
	if d.Cmd != "parse" {
		t.Fatalf("%s: command %s is not known", d.Pos, d.Cmd)
	}
	s := Script{Text: visible.Replace(d.Input) + "\n"}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "words":
			s.Options.Prefixes = a.Vals
		case "need-pool":
			s.Options.NeedPool = true
		case "pools":
			s.Options.Pools = a.Vals
		case "expanded":
			s.Options.Expanded = true
		case "profile":
			s.Options.Profiles = map[string]string{a.Vals[0]: strings.Join(a.Vals[1:], " ")}
		default:
			t.Fatalf("%s: option %s is not known", d.Pos, a.Key)
		}
	}
	return s
}

// Corpus returns all scripts below a folder of testdata.
func Corpus(t *testing.T, folder string) []Script {
	t.Helper()
	var all []Script
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			all = append(all, Read(t, d))
			return d.Expected
		})
	})
	if len(all) == 0 {
		t.Fatalf("%s has no scripts", folder)
	}
	return all
}
