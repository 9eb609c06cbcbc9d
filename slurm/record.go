package slurm

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"forebay/internal/bb"
)

// record is what is remembered of one life of a job: its directives are read once, in
// setup, since later hooks may be shown them otherwise or not at all (Slurm replaces
// symbols for some of them, and has a dummy script for others).
//
//	setup ──▶ data-in ──▶ pre-run ──▶ (the job runs) ──▶ post-run ──▶ data-out ──▶ teardown
//
// Every stage may be ended at any moment, and is begun again from its start.
type record struct {
	Job        JobInfo          `json:"job"`
	Buffer     string           `json:"buffer"` // name of the job's own; "": it has none
	Directives string           `json:"directives"`
	Words      []string         `json:"words"`
	Expanded   bool             `json:"expanded"`
	Granted    int64            `json:"granted"` // bytes that Slurm counts from the pool
	Pool       string           `json:"pool"`
	Stages     map[string]stage `json:"stages"`
	Well       bool             `json:"well"` // the job ended well; valid when post-run is done
	Created    time.Time        `json:"created"`

	file string    // where it lies, once it was put aside; "": where the present life of a job does
	seen time.Time // when a verb last said that it works on it
}

// stage is how one of the verbs has ended, or stands.
type stage struct {
	State   string    `json:"state"` // running, done, failed
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

func (r *record) done(verb string) bool { return r.Stages[verb].State == stateDone }

// ran reports whether the job may have written something.
func (r *record) ran() bool { return r.done("pre-run") }

// over reports whether nothing is left to do.
func (r *record) over() bool { return r.done("teardown") }

// sameLife reports whether a record is of this life of a job, and not of one before it was
// requeued, or of another job that had its id.
func (r *record) sameLife(j *JobInfo) bool {
	return r.Job.ID == j.ID && r.Job.Submitted == j.Submitted && r.Job.Restarts == j.Restarts
}

// request reads the directives again. They were good when the record was made.
func (r *record) request(o Options) (*Request, *Work, error) {
	o.Words, o.Expanded, o.Pools = r.Words, r.Expanded, nil
	req, problems := Parse([]byte(r.Directives), o)
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	w, err := req.Resolve(r.Job.vars(r.Buffer))
	return req, w, err
}

// records keeps them in a folder: JOB.json the present life of a job, JOB.env its
// variables, old/ those whose successor has come before they were over.
type records struct{ dir string }

func (rs records) file(job string) string { return filepath.Join(rs.dir, job+".json") }

// load returns the record of a job; bb.NotFound if there is none.
func (rs records) load(job string) (*record, error) {
	if err := CheckJobID(job); err != nil {
		return nil, err
	}
	return readRecord(rs.file(job))
}

func readRecord(file string) (*record, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bb.E(bb.NotFound, "job", strings.TrimSuffix(filepath.Base(file), ".json"), "nothing is known of it: slurm_bb_setup has not run")
	}
	if err != nil {
		return nil, bb.Wrap("job", file, err)
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "job", Path: file, Err: err}
	}
	if r.Stages == nil {
		r.Stages = map[string]stage{}
	}
	if info, err := os.Stat(file); err == nil {
		r.seen = info.ModTime()
	}
	return r, nil
}

// beatEvery is how often a verb says that it works on a record.
const beatEvery = 10 * time.Second

// beat says so until stop is called: whoever looks for stages that nobody works on any
// more sees it by the file's time.
func (rs records) beat(r *record) (stop func()) {
	file := either(r.file, rs.file(r.Job.ID))
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(beatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				_ = os.Chtimes(file, now, now) // it may be gone, or another's
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// save writes a record. It is whole on the disk, or the one before is. A verb of an
// earlier life may still run when the next one has begun: it keeps to its own.
func (rs records) save(r *record) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	file := r.file
	if file == "" {
		file = rs.file(r.Job.ID)
		if now, err := rs.load(r.Job.ID); err == nil && !now.sameLife(&r.Job) && now.Created.After(r.Created) {
			file = rs.aside(r)
		}
	}
	return writeWhole(file, append(text, '\n'), 0o600)
}

// refresh takes over how the stages of the same life stand now.
func (rs records) refresh(r *record) {
	now, err := readRecord(either(r.file, rs.file(r.Job.ID)))
	if err != nil || !now.sameLife(&r.Job) {
		return
	}
	for verb, s := range now.Stages {
		if s.Since.After(r.Stages[verb].Since) {
			r.Stages[verb] = s
		}
	}
}

// aside is where a record lies whose job has a newer life.
func (rs records) aside(r *record) string {
	return filepath.Join(rs.dir, "old", r.Job.ID+"."+either(r.Buffer, "none")+".json")
}

// dropEnv removes the variables of a job, unless they are those of a newer life.
func (rs records) dropEnv(r *record) error {
	if now, err := rs.load(r.Job.ID); err == nil && !now.sameLife(&r.Job) {
		return nil
	}
	return removeIfThere(rs.env(r.Job.ID))
}

// begin makes the record of a new life of a job, putting an older one aside.
func (rs records) begin(r *record) error {
	old, err := rs.load(r.Job.ID)
	switch {
	case bb.KindOf(err) == bb.NotFound:
	case err != nil:
		return err
	case old.sameLife(&r.Job):
		r.Created = old.Created
	case !old.over():
		if err := os.MkdirAll(filepath.Join(rs.dir, "old"), 0o755); err != nil {
			return bb.Wrap("job", rs.dir, err)
		}
		if err := os.Rename(rs.file(r.Job.ID), rs.aside(old)); err != nil {
			return bb.Wrap("job", rs.dir, err)
		}
	}
	return rs.save(r)
}

// all returns the records of a folder by their files. What cannot be read is
// named in the error beside the others.
func (rs records) all(sub string) (map[string]*record, error) {
	files, err := filepath.Glob(filepath.Join(rs.dir, sub, "*.json"))
	list := map[string]*record{}
	for _, f := range files {
		if first := filepath.Base(f)[0]; first < '0' || first > '9' {
			continue // settings.json, pools.json
		}
		r, bad := readRecord(f)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		if sub != "" {
			r.file = f
		}
		list[f] = r
	}
	return list, err
}

// forget removes what is known of a job.
func (rs records) forget(file string, r *record) error {
	return errors.Join(rs.dropEnv(r), os.Remove(file))
}

func (rs records) env(job string) string { return filepath.Join(rs.dir, job+".env") }

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeWhole replaces a file at once.
func writeWhole(file string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new*")
	if err != nil {
		return bb.Wrap("write", file, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return bb.Wrap("write", file, err)
}
