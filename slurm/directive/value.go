package directive

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
)

// ignored warns of those of DataWarp's and NNF's options that have no effect here, and refuses
// those whose effect a job depends on.
func (p *parser) ignored(s *said) {
	if o, ok := s.get("type"); ok {
		switch o.value {
		case "scratch":
		case "xfs", "gfs2", "lustre":
			p.warn(o.column, "type="+o.value+" is ignored: a buffer has a namespace of its own", "")
		case "cache":
			if _, ok := s.get("backing"); !ok {
				p.report(o.column, "type=cache is in front of a store, but none is named", "add backing=/path or backing=s3://bucket/prefix")
			}
		default:
			p.report(o.valueAt, "type="+o.value+" is not known", "write type=scratch")
		}
	}
	if o, ok := s.get("access_mode"); ok {
		for mode := range strings.SplitSeq(o.value, ",") {
			switch mode {
			case "striped":
			case "private", "ldbalance":
				p.warn(o.column, mode+" is ignored: all nodes of the job see all files of a buffer", "")
			default:
				p.report(o.valueAt, `access_mode "`+mode+`" is not known`, "write access_mode=striped")
			}
		}
	}
}

// withProfile adds the options of the line's profile that the line itself does not set.
func (p *parser) withProfile(s *said) {
	o, ok := s.get("profile")
	if !ok {
		return
	}
	text, ok := p.o.Profiles[o.value]
	if !ok {
		p.report(o.valueAt, `this site has no profile "`+o.value+`"`, "leave it out, or ask the administrator")
		return
	}
	for _, w := range split(text, 0) {
		key, value, _ := strings.Cut(w.value, "=")
		if _, ok := s.get(key); !ok && slices.Contains(bufferKeys, key) && key != "profile" {
			s.list = append(s.list, option{key: key, value: value, column: o.column, valueAt: o.valueAt})
		}
	}
}

// bufferOptions reads the settings of a buffer.
func (p *parser) bufferOptions(s *said) BufferOptions {
	var b BufferOptions
	p.withProfile(s)
	p.ignored(s)
	if o, ok := s.get("capacity"); ok {
		b.Capacity = p.size(o)
		if _, ok := s.get("pool"); !ok && p.o.NeedPool {
			p.report(o.column, "capacity without a pool, which Slurm refuses without a reason", p.poolRemedy())
		}
	}
	if o, ok := s.get("pool"); ok {
		b.Pool = o.value
		if _, ok := s.get("capacity"); !ok {
			p.warn(o.column, "pool is ignored without a capacity", "add capacity=100GiB")
		}
		if p.o.Pools != nil && !slices.Contains(p.o.Pools, o.value) {
			p.report(o.valueAt, `there is no pool "`+o.value+`"`, p.poolRemedy())
		}
	}
	if o, ok := s.get("backing"); ok {
		b.Backing = p.store(o)
	}
	if c := p.choice(s, "compression", "none", "zstd", "s2"); c != "none" {
		b.Compression = c
	}
	b.Durability = bb.Durability(p.choice(s, "durability", "resident", "flushed"))
	b.Existing = bb.Existing(p.choice(s, "existing", "keep", "overwrite", "refuse"))
	b.Shared = p.choice(s, "shared", "no", "yes") == "yes"
	if r := p.choice(s, "replicas", "", "1", "2"); r != "" {
		b.Replicas = int(r[0] - '0')
	}
	if o, ok := s.get("flush_limit"); ok {
		o.value = strings.TrimSuffix(o.value, "/s")
		b.FlushLimit = p.size(o)
	}
	if o, ok := s.get("dirty_age"); ok {
		b.DirtyAge = p.duration(o)
	}
	p.flushRules(s, &b)
	p.needBacking(s)
	return b
}

// flushRules reads rules with semicolons between them, in which hyphens stand for blanks. Of wildcards, * and ? alone
// are allowed, since lua/directives.lua has no others.
func (p *parser) flushRules(s *said, b *BufferOptions) {
	o, ok := s.get("flush")
	if !ok {
		return
	}
	copies := false
	for text := range strings.SplitSeq(o.value, ";") {
		r, err := bb.ParseFlushRule(text)
		if err != nil || strings.IndexFunc(text, func(c rune) bool { return c == '[' || c == '%' || c > '~' }) >= 0 {
			p.report(o.valueAt, "flush "+text+" is no rule", "write flush=step-*/=every-5, or last-at-end-of-job after the equals sign; commas between clauses, semicolons between rules")
			return
		}
		copies = copies || r.Copies
		b.Flush = append(b.Flush, r)
	}
	switch {
	case len(b.Flush) > bb.MaxFlushRules:
		p.report(o.valueAt, "flush has more than "+itoa(bb.MaxFlushRules)+" rules", "use wildcards")
	case b.Durability == bb.DurabilityFlushed:
		p.report(o.column, "flush holds files back, and durability=flushed has each close wait for its flush", "leave one of them out")
	case copies && b.Replicas < 2:
		p.report(o.column, "flush is about second copies, and the buffer has none", "add replicas=2")
	}
}

func (p *parser) poolRemedy() string {
	if len(p.o.Pools) == 0 {
		return "add pool= and its name"
	}
	return "write pool=" + strings.Join(p.o.Pools, " or pool=")
}

// needBacking refuses options that have no effect in a buffer that is never flushed.
func (p *parser) needBacking(s *said) {
	if _, ok := s.get("backing"); ok {
		return
	}
	if o, ok := s.get("durability"); ok && o.value == "flushed" {
		p.report(o.column, "durability=flushed needs a store", "add backing=/path or backing=s3://bucket/prefix")
	}
	for _, key := range []string{"compression", "flush_limit", "dirty_age", "existing", "shared", "flush"} {
		if o, ok := s.get(key); ok {
			p.warn(o.column, key+" is ignored without backing", "")
		}
	}
}

// choice reads one of some values. The default is the first.
func (p *parser) choice(s *said, key string, values ...string) string {
	o, ok := s.get(key)
	if !ok {
		return values[0]
	}
	if o.value == "" || !slices.Contains(values, o.value) {
		given := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
		p.report(o.valueAt, `"`+o.value+`" is no value of `+key, "write "+key+"="+strings.Join(given, " or "+key+"="))
		return values[0]
	}
	return o.value
}

var units = map[byte]int64{'k': 1, 'm': 2, 'g': 3, 't': 4, 'p': 5}

// size reads a number of bytes as Slurm does: K and KiB are 1024, KB is 1000.
func (p *parser) size(o option) int64 {
	digits := 0
	for digits < len(o.value) && o.value[digits] >= '0' && o.value[digits] <= '9' {
		digits++
	}
	unit := strings.ToLower(o.value[digits:])
	what := o.key + " " + o.value
	switch {
	case digits == 0:
		p.report(o.valueAt, what+" is no size", "write a whole number and K, M, G, T or P, as in 100GiB")
		return 0
	case unit != "" && (unit[0] == '.' || unit[0] == ','):
		if o.key == "capacity" {
			what += " is no whole number: Slurm would read " + o.value[:digits] + " bytes"
		} else {
			what += " is no whole number"
		}
		p.report(o.valueAt, what, "write 2560MiB for 2.5GiB")
		return 0
	case unit == "n" || unit == "node" || unit == "nodes":
		p.report(o.valueAt, what+" counts nodes, and Slurm would take that for 8 EiB", "write a size, as in 100GiB")
		return 0
	}
	factor := int64(1)
	if unit != "" {
		power, ok := units[unit[0]]
		switch {
		case ok && (len(unit) == 1 || unit[1:] == "ib"):
			factor = 1 << (10 * power)
		case ok && unit[1:] == "b":
			for range power {
				factor *= 1000
			}
		default:
			p.report(o.valueAt, what+" has a unit that is not known, and Slurm would take it for bytes", "write K, M, G, T or P, as in 100GiB")
			return 0
		}
	}
	n, err := strconv.ParseInt(o.value[:digits], 10, 64)
	switch {
	case err != nil || float64(n)*float64(factor) > maxCapacity:
		p.report(o.valueAt, what+" is more than 1 EiB", "")
		return 0
	case n == 0:
		p.report(o.valueAt, what+" is nothing", "leave it out, or write a size, as in 100GiB")
		return 0
	}
	return n * factor
}

// duration reads a whole number of seconds, minutes or hours.
func (p *parser) duration(o option) time.Duration {
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[o.value[len(o.value)-1]]
	n, err := strconv.ParseUint(o.value[:len(o.value)-1], 10, 32)
	if unit == 0 || err != nil || n == 0 || n > 99_999 || len(o.value) > 6 {
		p.report(o.valueAt, o.key+" "+o.value+" is no duration", "write a whole number and s, m or h, as in 5m")
		return 0
	}
	return time.Duration(n) * unit
}

// store reads where something lies outside of buffers, as a URL with symbols.
func (p *parser) store(o option) string {
	url := o.value
	if strings.HasPrefix(url, "/") || strings.HasPrefix(url, "%d") && !p.o.Expanded {
		url = "file://" + url
	}
	if !p.symbols(o) {
		return ""
	}
	switch {
	case strings.Contains(url, "$"):
		p.report(o.valueAt+strings.IndexByte(o.value, '$'), "only variables of buffers are replaced here, and a store's name has none", "write %u for the user's name, %j for the job's id")
	default:
		example := &Vars{Job: "1", ArrayJob: "1", ArrayTask: "0", User: "u", Name: "n", WorkDir: "/w"}
		if _, err := storeURL(url, example, p.o.Expanded); err != nil {
			p.report(o.valueAt, o.value+" names no store", "write /path, file:///path or s3://bucket/prefix")
		}
	}
	return url
}

// symbolLetters are those that Slurm replaces after a per cent sign.
const symbolLetters = "Aadjux%"

// symbols refuses symbols that Slurm would not replace.
func (p *parser) symbols(o option) bool {
	if p.o.Expanded {
		return true
	}
	for i := 0; i < len(o.value); i++ {
		if o.value[i] != '%' {
			continue
		}
		if i+1 == len(o.value) || strings.IndexByte(symbolLetters, o.value[i+1]) < 0 {
			p.report(o.valueAt+i, "a per cent sign before something that Slurm does not replace",
				"write %j job, %A array job, %a array task, %u user, %x job's name, %d folder, or %% for the sign")
			return false
		}
		i++
	}
	return true
}

// stage reads one copy: at is the key of the side in a buffer, store of the other one.
func (p *parser) stage(s *said, at, store string) *Stage {
	st := new(Stage)
	if o, ok := s.get("type"); ok && o.value != "file" && o.value != "directory" {
		p.report(o.valueAt, "type="+o.value+" is not known", "leave it out: a file, or all of a directory, is copied; of a list, write a line for each")
	}
	o, _ := s.get(store)
	if strings.HasPrefix(o.value, "$") {
		p.report(o.valueAt, store+" of "+s.command.name+" must be outside of buffers", "write /path, file:///path or s3://bucket/prefix")
	} else {
		st.URL = p.store(o)
	}
	o, _ = s.get(at)
	if !strings.HasPrefix(o.value, "$") {
		p.report(o.valueAt, at+" of "+s.command.name+" must be in a buffer", "begin it with $BB_JOB_STRIPED/ or $BB_PERSISTENT_STRIPED_name/")
		return st
	}
	_, path := cutVariable(o.value)
	offset := o.valueAt + len(o.value) - len(path)
	if i := strings.IndexByte(path, '$'); i >= 0 {
		p.report(offset+i, "a variable is replaced at the beginning only", "write %u for the user's name, %j for the job's id")
	}
	p.symbols(o)
	if slices.Contains(strings.Split(path, "/"), "..") {
		p.report(offset, `".." may lead out of the buffer`, "write the path without it")
	}
	st.Path = path
	return st
}

// cutVariable splits "$NAME/path" or "${NAME}/path" into "$NAME" and "path".
func cutVariable(text string) (variable, path string) {
	variable, path, _ = strings.Cut(text, "/")
	if name, ok := strings.CutPrefix(variable, "${"); ok && strings.HasSuffix(name, "}") {
		variable = "$" + strings.TrimSuffix(name, "}")
	}
	return variable, path
}

// refer records which buffer the last stage of a list is about.
func (p *parser) refer(s *said, key string, list *[]Stage) {
	o, _ := s.get(key)
	if !strings.HasPrefix(o.value, "$") {
		return
	}
	variable, _ := cutVariable(o.value)
	ref := bufferRef{line: p.line, column: o.valueAt, variable: variable}
	i := len(*list) - 1
	ref.fix = func(name string) { (*list)[i].Buffer = name }
	name := variable[1:]
	if name == "FOREBAY_BUFFER" || name == "FOREBAY_DIR" {
		ref.job = true
		p.refs = append(p.refs, ref)
		return
	}
	rest, ok := strings.CutPrefix(name, "BB_")
	if !ok {
		rest, ok = strings.CutPrefix(name, "DW_")
		p.r.dw = p.r.dw || ok
	}
	switch {
	case !ok:
	case rest == "JOB_STRIPED", rest == "JOB_PRIVATE":
		ref.job = true
		p.refs = append(p.refs, ref)
		return
	case strings.HasPrefix(rest, "JOB_") && len(rest) > len("JOB_"):
		ref.job, ref.name = true, strings.TrimPrefix(rest, "JOB_")
		p.refs = append(p.refs, ref)
		return
	case strings.HasPrefix(rest, "PERSISTENT_"):
		rest = strings.TrimPrefix(rest, "PERSISTENT_")
		if ref.name = strings.TrimPrefix(rest, "STRIPED_"); ref.name != "" {
			p.refs = append(p.refs, ref)
			return
		}
	}
	p.report(o.valueAt, variable+" is no variable of buffers", "write $BB_JOB_STRIPED or $BB_PERSISTENT_STRIPED_name")
}
