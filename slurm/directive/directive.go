// Package directive reads the directives of job scripts: the buffers of a job, and the copies to be
// staged in and out. It must never depend on the way of requests to Slurm, or on how daemons carry
// out a directive.
package directive

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"forebay/internal/bb"
)

// The grammar of directives:
//
//	line    = "#" word {" "} command {" " {" "} option}
//	word    = "BB" | "DW"                        the site's setting
//	command = "jobbb" | "jobdw" | "persistentbb" | "persistentdw" | "create_persistent"
//	        | "destroy_persistent" | "stage_in" | "copy_in" | "stage_out" | "copy_out"
//	option  = key "=" value | "hurry"
//
// Slurm reads the same lines by rules of its own (burst_buffer_lua.c, 22.05). It reads those above
// the first line that does not begin with "#", finds "capacity=" and "pool=" anywhere in a line,
// reads a number with strtoull and ignores an unknown unit. Text that it would read otherwise than
// it stands there is refused here.
//
// burst_buffer.lua and job_submit.lua run inside slurmctld, where calls are forbidden, so
// lua/directives.lua checks the same in the same words. A test compares the two.

// Bounds of the requests of one script.
const (
	maxDirectives = 256
	maxNameLength = 32
	maxCapacity   = 1 << 60 // bytes
)

// Options are a site's rules for directives. The zero value reads lines that begin with #BB.
type Options struct {
	// Prefixes are those after "#" that make a line a directive: BB, DW. Without any, BB is.
	Prefixes []string
	// NeedPool refuses a capacity without a pool, since burst_buffer/lua does, without a message.
	NeedPool bool
	// Pools are the names of those there are. nil allows any name.
	Pools []string
	// Profiles are sets of options that a line may name, as in "backing=/lustre/bb replicas=2".
	Profiles map[string]string
	// Expanded: Slurm has replaced %j, %u and the others already.
	Expanded bool
}

// Request is the content of the directives of one script.
type Request struct {
	Job      *JobBuffer // nil: the job has no buffer of its own
	Uses     []Use      // buffers that outlive jobs, and that this one uses
	Creates  []Creation
	Destroys []Destruction
	In, Out  []Stage // in the order of the script

	dw       bool // a DW directive, or DW variable, was used
	expanded bool
}

// Empty reports whether a script has no directive.
func (r *Request) Empty() bool {
	return r.Job == nil && len(r.Uses)+len(r.Creates)+len(r.Destroys)+len(r.In)+len(r.Out) == 0
}

// JobBuffer is a buffer that lives as long as its job.
type JobBuffer struct {
	Name string // the variable BB_JOB_<Name> has its address too; may be ""
	Warn string // see ParseWarning; "": no warning
	BufferOptions
}

// BufferOptions are the settings of a requested buffer.
type BufferOptions struct {
	Capacity    int64  // bytes; 0: no limit of its own
	Pool        string // "": not set
	Backing     string // file:///path or s3://bucket/prefix with symbols such as %u; "": none
	Compression string // "", zstd, s2
	Durability  bb.Durability
	Existing    bb.Existing
	Shared      bool          // its store may overlap those of other buffers
	Replicas    int           // 0: not given
	FlushLimit  int64         // bytes a second; 0: none
	DirtyAge    time.Duration // 0: the daemon's default
	Flush       []bb.FlushRule
}

// Use names a buffer that outlives jobs and that the job uses.
type Use struct{ Name string }

// Creation requests a buffer that outlives the job.
type Creation struct {
	Name string // which is the buffer's
	BufferOptions
}

// Destruction requests that a buffer that outlives jobs ends with this job.
type Destruction struct {
	Name  string
	Hurry bool // even if something in it is not on its store
}

// Stage is one copy between a store and a buffer.
type Stage struct {
	Buffer string // name of a buffer that outlives jobs; "": the job's own
	Path   string // in the buffer, with symbols; "": its root
	URL    string // of the store, with symbols

	ContinueOnError bool // in: the job runs even if this failed, else it is held
	OnSuccess       bool // out: only if the job ended well, else however it ended
}

// Parse reads the directives of a job script, or of the text that --bb was given. The request is
// complete only if the problems hold no errors. Parse never fails otherwise.
func Parse(script []byte, o Options) (*Request, Problems) {
	if len(o.Prefixes) == 0 {
		o.Prefixes = []string{"BB"}
	}
	p := &parser{o: o, r: &Request{expanded: o.Expanded}}
	p.script(string(script))
	p.references()
	slices.SortStableFunc(p.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p.r, p.problems
}

// parser is the state of one Parse.
type parser struct {
	o        Options
	r        *Request
	problems Problems
	line     int
	count    int           // of directives
	refs     []bufferRef   // to buffers with directives that may come later
	creates  []declaration // of names, to find those that are declared twice
	flawed   bool          // the line that is being read has an error
}

// bufferRef is where a variable names a buffer.
type bufferRef struct {
	line, column int
	variable     string
	job          bool
	name         string // of a job's buffer or one that outlives jobs; "": the job's only one
	fix          func(buffer string)
}

type declaration struct{ kind, name string }

func (p *parser) report(column int, reason, remedy string) {
	p.flawed = true
	p.problems = append(p.problems, Problem{Line: p.line, Column: column, Reason: reason, Remedy: remedy})
}

func (p *parser) warn(column int, reason, remedy string) {
	p.problems = append(p.problems, Problem{Line: p.line, Column: column, Reason: reason, Remedy: remedy, Warning: true})
}

// script reads the lines of a script. Directives stand above the first that is no comment.
func (p *parser) script(text string) {
	ended := 0 // the line where Slurm stops
	continued := false
	for line := range strings.SplitSeq(text, "\n") {
		p.line++
		if p.count > maxDirectives {
			return
		}
		switch {
		case ended > 0:
			p.late(line, ended)
		case line == "" || line == "\r":
			// Slurm skips empty lines.
		case line[0] != '#':
			ended = p.line
			p.late(line, ended)
		default:
			word, rest := p.word(line[1:])
			switch {
			case word == "":
				p.foreign(line)
			case continued:
				continued = strings.HasSuffix(rest, `\`) // its first line was refused
			default:
				continued = strings.HasSuffix(rest, `\`)
				p.count++
				p.directive(word, rest)
			}
		}
	}
}

// word cuts the word off that makes a line a directive of this site. It returns "" if it is none.
func (p *parser) word(text string) (word, rest string) {
	for _, w := range p.o.Prefixes {
		if rest, ok := strings.CutPrefix(text, w); ok {
			return w, rest
		}
	}
	return "", text
}

// late refuses a directive below the part of the script that Slurm reads. Other text may resemble one, so
// only lines with a command count.
func (p *parser) late(line string, ended int) {
	text := strings.TrimLeft(line, " \t")
	if !strings.HasPrefix(text, "#") {
		return
	}
	word, rest := p.word(text[1:])
	if word == "" || !hasCommand(rest) {
		return
	}
	column := len(line) - len(text) + 1
	if column > 1 && p.line == ended {
		p.report(column, "a blank stands before #"+word+", so Slurm takes the line for the script's first command", "begin the line with #"+word)
		return
	}
	p.report(column, "the directive comes after line "+itoa(ended)+", which is no comment: Slurm does not see it", "move it up, just below the first line")
}

// foreign warns that a directive of another spelling is ignored here.
func (p *parser) foreign(line string) {
	for _, w := range []string{"BB", "DW"} {
		if rest, ok := strings.CutPrefix(line, "#"+w); ok && hasCommand(rest) {
			p.warn(1, "#"+w+" lines are ignored here", "write #"+p.o.Prefixes[0])
		}
	}
}

// hasCommand reports whether text is a blank and one of the commands.
func hasCommand(text string) bool {
	trimmed := strings.TrimLeft(text, " \t")
	if trimmed == text {
		return false
	}
	end := strings.IndexAny(trimmed, " \t\r")
	if end < 0 {
		end = len(trimmed)
	}
	_, ok := commands[trimmed[:end]]
	return ok
}

// references checks that the buffers that variables name are declared. Where a line was
// refused, its declarations are unknown, and nothing is checked.
func (p *parser) references() {
	if len(p.problems.Errors()) > 0 {
		return
	}
	for _, ref := range p.refs {
		p.line = ref.line
		if ref.job {
			switch {
			case p.r.Job == nil:
				p.report(ref.column, ref.variable+" is used, but the job has no buffer", "add a jobbb line")
			case ref.name != "" && variableName(p.r.Job.Name) != ref.name:
				p.report(ref.column, ref.variable+" is used, but no jobbb line has this name", "add name="+ref.name+" to it, or write $BB_JOB_STRIPED")
			}
			continue
		}
		name, ok := p.persistent(ref.name)
		if !ok {
			p.report(ref.column, ref.variable+" is used, but the job does not use this buffer", "add a line: persistentbb name="+ref.name)
			continue
		}
		ref.fix(name)
	}
}

// persistent finds a buffer that the job uses by its name as it stands in a variable.
func (p *parser) persistent(variable string) (string, bool) {
	for _, u := range p.r.Uses {
		if variableName(u.Name) == variable {
			return u.Name, true
		}
	}
	for i := range p.r.Creates {
		if variableName(p.r.Creates[i].Name) == variable {
			return p.r.Creates[i].Name, true
		}
	}
	return "", false
}

// variableName is a name as it stands in that of a variable.
func variableName(name string) string { return strings.ReplaceAll(name, "-", "_") }
