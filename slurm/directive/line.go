package directive

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
)

func itoa(n int) string { return strconv.Itoa(n) }

// command is one kind of directive.
type command struct {
	name     string // as users of DataWarp and NNF spell it, in our spelling
	options  []string
	required []string
	flags    []string
}

var (
	bufferKeys = []string{
		"type", "access_mode", "capacity", "pool", "profile", "backing", "compression", "durability", "replicas", "flush_limit", "dirty_age",
		"existing", "shared", "flush",
	}
	jobCommand     = &command{name: "jobbb", options: append([]string{"name", "warn"}, bufferKeys...)}
	useCommand     = &command{name: "persistentbb", options: []string{"name", "type", "access_mode"}, required: []string{"name"}}
	createCommand  = &command{name: "create_persistent", options: append([]string{"name"}, bufferKeys...), required: []string{"name"}}
	destroyCommand = &command{name: "destroy_persistent", options: []string{"name"}, required: []string{"name"}, flags: []string{"hurry"}}
	inCommand      = &command{name: "stage_in", options: []string{"type", "source", "destination", "on_error"}, required: []string{"source", "destination"}}
	outCommand     = &command{name: "stage_out", options: []string{"type", "source", "destination", "on"}, required: []string{"source", "destination"}}
)

// commands are all spellings: ours, DataWarp's and NNF's.
var commands = map[string]*command{
	"jobbb": jobCommand, "jobdw": jobCommand,
	"persistentbb": useCommand, "persistentdw": useCommand,
	"create_persistent": createCommand, "destroy_persistent": destroyCommand,
	"stage_in": inCommand, "copy_in": inCommand,
	"stage_out": outCommand, "copy_out": outCommand,
}

// keyAliases are other spellings of keys.
var keyAliases = map[string]string{"access": "access_mode", "pfs": "backing"}

// ignoredKeys are those of DataWarp and NNF that have no meaning here.
var ignoredKeys = []string{
	"ldbalance", "modified_threshold", "optimization_strategy", "read_ahead", "requires", "sync_on_close", "sync_to_pfs", "write_window_length", "write_window_multiplier",
}

// option is one word after the command.
type option struct {
	key, value      string
	column, valueAt int
}

// said are the given options of one directive.
type said struct {
	command *command
	column  int // of the command
	list    []option
}

func (s *said) get(key string) (option, bool) {
	i := slices.IndexFunc(s.list, func(o option) bool { return o.key == key })
	if i < 0 {
		return option{}, false
	}
	return s.list[i], true
}

// directive reads one line after its word.
func (p *parser) directive(word, rest string) {
	p.flawed = false
	if p.count > maxDirectives {
		p.report(1, "the script has more than "+itoa(maxDirectives)+" directives", "")
		return
	}
	start := 1 + len(word) // bytes of the line before rest
	rest, ok := p.text(rest, start)
	if !ok {
		return
	}
	if rest != "" && rest[0] != ' ' {
		p.report(start+1, "no blank stands after #"+word, "write #"+word+" and a blank, or, if it is a comment, # "+word)
		return
	}
	words := split(rest, start)
	if len(words) == 0 {
		p.warn(1, "the directive is empty", "")
		return
	}
	c, ok := commands[words[0].value]
	if !ok {
		p.report(words[0].column, `"`+words[0].value+`" is no command`,
			"write jobbb, persistentbb, create_persistent, destroy_persistent, stage_in or stage_out")
		return
	}
	p.r.dw = p.r.dw || word == "DW"
	s := &said{command: c, column: words[0].column}
	for _, w := range words[1:] {
		p.option(s, w)
	}
	for _, key := range c.required {
		if _, ok := s.get(key); !ok && !p.flawed {
			p.report(s.column, c.name+" needs "+key+"=", "")
		}
	}
	if !p.flawed {
		p.carry(s)
	}
}

// text refuses characters that Slurm reads otherwise than they appear, and returns the line without
// tabs. A false means that the rest is not worth reading.
func (p *parser) text(rest string, start int) (string, bool) {
	if strings.HasSuffix(rest, "\r") {
		p.report(start+len(rest), "the line ends as on DOS", "run dos2unix on the script")
		return "", false
	}
	if strings.HasSuffix(rest, `\`) {
		p.report(start+len(rest), "the line goes on in the next one: Slurm joins them, its hooks see two", "write all of it in one line")
		return "", false
	}
	if i := strings.IndexByte(rest, '\t'); i >= 0 {
		p.report(start+i+1, "a tab: to Slurm it is a part of the word before it", "write blanks")
		rest = strings.ReplaceAll(rest, "\t", " ")
	}
	for i := range len(rest) {
		switch c := rest[i]; {
		case c < ' ' || c == 0x7f:
			p.report(start+i+1, "a control character", "remove it")
			return "", false
		case c == '\\':
			p.report(start+i+1, "a backslash: it would stop Slurm from replacing %j and the like", "remove it")
			return "", false
		case c == '"' || c == '\'' || c == '`':
			p.report(start+i+1, "a quotation mark: nothing is unquoted here, it would be a part of the name", "remove it; names with blanks cannot be given")
			return "", false
		}
	}
	return rest, true
}

// split returns the words of a line with their columns, as values.
func split(rest string, start int) []option {
	var words []option
	for i := 0; i < len(rest); {
		if rest[i] == ' ' {
			i++
			continue
		}
		end := i
		for end < len(rest) && rest[end] != ' ' {
			end++
		}
		words = append(words, option{value: rest[i:end], column: start + i + 1})
		i = end
	}
	return words
}

// option takes one word after the command.
func (p *parser) option(s *said, w option) {
	key, value, ok := strings.Cut(w.value, "=")
	if !ok {
		if slices.Contains(s.command.flags, w.value) {
			s.list = append(s.list, option{key: w.value, column: w.column})
			return
		}
		p.report(w.column, `"`+w.value+`" is no option`, "options are written key=value, without blanks")
		return
	}
	o := option{key: key, value: value, column: w.column, valueAt: w.column + len(key) + 1}
	if long, ok := keyAliases[key]; ok {
		o.key = long
	}
	_, twice := s.get(o.key)
	switch {
	case strings.Contains(value, "capacity=") || strings.Contains(value, "pool="):
		p.report(o.valueAt, "Slurm searches the whole line for capacity= and pool=, and would find them here", "use another name")
	case slices.Contains(ignoredKeys, key):
		p.warn(w.column, key+" is ignored: it has no meaning here", "")
	case !slices.Contains(s.command.options, o.key):
		p.report(w.column, s.command.name+" has no option "+key, "it has "+strings.Join(slices.Concat(s.command.options, s.command.flags), ", "))
	case twice:
		p.report(w.column, key+" is given twice", "")
	case value == "":
		p.report(o.valueAt, key+" is empty", "")
	default:
		s.list = append(s.list, o)
	}
}

// carry puts the content of a directive into the request.
func (p *parser) carry(s *said) {
	switch s.command {
	case jobCommand:
		p.jobBuffer(s)
	case useCommand:
		p.ignored(s)
		if name := p.persistentName(s); name != "" {
			p.r.Uses = append(p.r.Uses, Use{Name: name})
		}
	case createCommand:
		b := p.bufferOptions(s)
		if name := p.persistentName(s); name != "" {
			p.r.Creates = append(p.r.Creates, Creation{Name: name, BufferOptions: b})
		}
	case destroyCommand:
		_, hurry := s.get("hurry")
		if name := p.persistentName(s); name != "" {
			p.r.Destroys = append(p.r.Destroys, Destruction{Name: name, Hurry: hurry})
		}
	case inCommand:
		st := p.stage(s, "destination", "source")
		st.ContinueOnError = p.choice(s, "on_error", "hold", "continue") == "continue"
		p.r.In = append(p.r.In, *st)
		p.refer(s, "destination", &p.r.In)
	case outCommand:
		st := p.stage(s, "source", "destination")
		st.OnSuccess = p.choice(s, "on", "any", "success") == "success"
		p.r.Out = append(p.r.Out, *st)
		p.refer(s, "source", &p.r.Out)
	}
}

func (p *parser) jobBuffer(s *said) {
	if p.r.Job != nil {
		p.report(s.column, "a second jobbb line: a job has one buffer", "add up the capacities in one line")
		return
	}
	j := &JobBuffer{BufferOptions: p.bufferOptions(s)}
	if o, ok := s.get("name"); ok {
		j.Name = o.value
		if !PlainName(o.value) {
			p.report(o.valueAt, `"`+o.value+`" cannot be a part of a variable's name`,
				"use letters, digits, - and _, at most "+itoa(maxNameLength))
		}
	}
	if o, ok := s.get("warn"); ok {
		if _, ok := ParseWarning(o.value); !ok {
			p.report(o.valueAt, "warn "+o.value+" is no signal", "write warn=USR1, warn=B:USR1 for the script itself, or warn=USR1@120 for 120 seconds before the end")
		}
		if _, ok := s.get("backing"); !ok {
			p.warn(o.column, "warn is ignored without backing", "")
		}
		j.Warn = o.value
	}
	p.r.Job = j
}

// Warning is how a job is warned that its buffer will not be on its store in time.
type Warning struct {
	Batch  bool          // the script itself gets the signal, else its steps
	Signal string        // without SIG
	Before time.Duration // how long before the job's end everything should be on the store
}

// warnSignals are the signals for warnings of jobs: those that do not stop a process for good.
var warnSignals = []string{"USR1", "USR2", "TERM", "INT", "HUP", "ALRM", "CONT", "WINCH"}

// ParseWarning reads [B:]SIGNAL[@SECONDS], the form of sbatch's --signal.
func ParseWarning(text string) (w Warning, ok bool) {
	text, w.Batch = strings.CutPrefix(text, "B:")
	signal, seconds, given := strings.Cut(text, "@")
	w.Signal = signal
	if given {
		n, err := strconv.ParseUint(seconds, 10, 32)
		if err != nil || len(seconds) > 5 {
			return w, false
		}
		w.Before = time.Duration(n) * time.Second
	}
	return w, slices.Contains(warnSignals, signal)
}

// persistentName reads the name of a buffer that outlives jobs. It returns "" if it is refused.
func (p *parser) persistentName(s *said) string {
	o, _ := s.get("name")
	switch {
	case !PlainName(o.value) || bb.CheckBufferName(o.value) != nil:
		p.report(o.valueAt, `"`+o.value+`" cannot be a buffer's name`, "use a-z, 0-9, - and _, at most "+itoa(maxNameLength))
	case strings.HasPrefix(o.value, JobBufferPrefix):
		p.report(o.valueAt, `names with "`+JobBufferPrefix+`" are those of jobs' own buffers`, "use another name")
	case slices.Contains(p.creates, declaration{s.command.name, variableName(o.value)}):
		p.report(o.valueAt, s.command.name+" names "+o.value+" twice", "")
	default:
		p.creates = append(p.creates, declaration{s.command.name, variableName(o.value)})
		return o.value
	}
	return ""
}

// PlainName reports whether a name can be a part of that of a variable.
func PlainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !word && (c != '-' || i == 0) {
			return false
		}
	}
	return name != "" && len(name) <= maxNameLength
}
