package directive

import (
	"strings"

	"forebay/internal/bb"
)

// JobBufferPrefix begins the names of buffers that belong to jobs. Buffers that outlive jobs may
// not have it.
const JobBufferPrefix = "job-"

// Vars are the values of the symbols and variables of directives in one job.
type Vars struct {
	Buffer    string // name of the job's own buffer
	Job       string // %j: its id
	ArrayJob  string // %A: the id of its array; "": that of the job
	ArrayTask string // %a: "": 0
	User      string // %u: its user's name
	UID, GID  uint32 // its user
	Name      string // %x: the job's
	WorkDir   string // %d
}

// expand replaces symbols, and nothing else. Slurm's are in slurm.conf(5) and
// burst_buffer.conf(5).
func (v *Vars) expand(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'j':
			b.WriteString(v.Job)
		case 'A':
			b.WriteString(either(v.ArrayJob, v.Job))
		case 'a':
			b.WriteString(either(v.ArrayTask, "0"))
		case 'u':
			b.WriteString(v.User)
		case 'x':
			b.WriteString(v.Name)
		case 'd':
			b.WriteString(v.WorkDir)
		case '%':
			b.WriteByte('%')
		default:
			b.WriteByte('%')
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

func either(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

// Work is a request with the names of one job.
type Work struct {
	Job      *bb.Buffer // to create; nil: none
	Creates  []bb.Buffer
	Uses     []string // buffers that must be there
	Destroys []Destruction
	In, Out  []Stage // with Buffer, Path and URL as daemons expect them
}

// Resolve replaces the symbols and variables of a request. It fails with bb.Invalid if
// the result names no store or leads out of a buffer.
func (r *Request) Resolve(v *Vars) (*Work, error) {
	w := &Work{Destroys: r.Destroys}
	if r.Job != nil {
		b, err := r.Job.buffer(v.Buffer, v, r.expanded)
		if err != nil {
			return nil, err
		}
		b.Job = v.Job
		w.Job = &b
	}
	for i := range r.Creates {
		b, err := r.Creates[i].buffer(r.Creates[i].Name, v, r.expanded)
		if err != nil {
			return nil, err
		}
		w.Creates = append(w.Creates, b)
	}
	for _, u := range r.Uses {
		w.Uses = append(w.Uses, u.Name)
	}
	var err error
	if w.In, err = r.stages(r.In, v); err != nil {
		return nil, err
	}
	w.Out, err = r.stages(r.Out, v)
	return w, err
}

// buffer returns the specification of a buffer with the options.
func (o *BufferOptions) buffer(name string, v *Vars, expanded bool) (bb.Buffer, error) {
	b := bb.Buffer{
		Name: name, UID: v.UID, GID: v.GID, Mode: 0o700, Capacity: o.Capacity, Durability: o.Durability, Codec: o.Compression,
		FlushLimit: o.FlushLimit, DirtyAge: o.DirtyAge, Replicas: o.Replicas, Existing: o.Existing, Shared: o.Shared,
	}
	if err := bb.CheckBufferName(name); err != nil {
		return b, err
	}
	if o.Backing == "" {
		return b, nil
	}
	b.Flush = o.Flush
	var err error
	b.Backing, err = storeURL(o.Backing, v, expanded)
	return b, err
}

func (r *Request) stages(list []Stage, v *Vars) ([]Stage, error) {
	var out []Stage
	for _, s := range list {
		if s.Buffer == "" {
			s.Buffer = v.Buffer
		}
		path := s.Path
		if !r.expanded {
			path = v.expand(path)
		}
		var err error
		if s.Path, err = bb.CleanPath(path); err != nil {
			return nil, err
		}
		if s.URL, err = storeURL(s.URL, v, r.expanded); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// storeURL replaces the symbols of a store's URL and returns it as file:///path or s3://bucket/prefix. Of a
// file's, everything is its path. A question mark or a per cent sign there means itself. The short form
// file:/path is valid, too (RFC 8089, appendix B), and a scheme may be in capitals (RFC 3986, section 3.1).
func storeURL(text string, v *Vars, expanded bool) (string, error) {
	if !expanded {
		text = v.expand(text)
	}
	scheme, rest, _ := strings.Cut(text, ":")
	scheme = strings.ToLower(scheme)
	if scheme == "s3" {
		text = scheme + ":" + rest
	}
	if scheme == "file" && strings.HasPrefix(rest, "/") {
		path := strings.TrimPrefix(rest, "//")
		if strings.ContainsRune(path, 0) {
			return "", bb.E(bb.Invalid, "store", path, "holds a NUL byte")
		}
		text = bb.DirectoryURL(path)
	}
	if _, err := bb.ParseBacking(text); err != nil {
		return "", err
	}
	return text, nil
}

// Env returns the variables of a job as NAME=value. BB_JOB_STRIPED is bb://NAME, since only a
// node knows whether the buffer is mounted there, and where. The spellings of DataWarp and NNF
// are there if the script uses theirs.
func (r *Request) Env(v *Vars) []string {
	var env []string
	add := func(name, buffer string) {
		address := bb.Scheme + "://" + buffer
		env = append(env, "BB_"+name+"="+address)
		if r.dw {
			env = append(env, "DW_"+name+"="+address)
		}
	}
	if r.Job != nil {
		add("JOB_STRIPED", v.Buffer)
		if name := variableName(r.Job.Name); name != "" {
			add("JOB_"+name, v.Buffer)
		}
		env = append(env, "FOREBAY_BUFFER="+v.Buffer)
	}
	persistent := func(name string) {
		add("PERSISTENT_STRIPED_"+variableName(name), name)
		if r.dw {
			add("PERSISTENT_"+variableName(name), name)
		}
	}
	for _, u := range r.Uses {
		persistent(u.Name)
	}
	for i := range r.Creates {
		if name := r.Creates[i].Name; !r.uses(name) {
			persistent(name)
		}
	}
	return env
}

func (r *Request) uses(name string) bool {
	for _, u := range r.Uses {
		if u.Name == name {
			return true
		}
	}
	return false
}
