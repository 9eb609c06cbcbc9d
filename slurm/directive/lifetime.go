package directive

import (
	"forebay/client/admin"
)

// Fill adds a job's requests to its lifetime, and returns the buffers that are to be
// made for it.
func (r *Request) Fill(l *admin.Lifetime, v *Vars) (create []admin.BufferSpec, err error) {
	w, err := r.Resolve(v)
	if err != nil {
		return nil, err
	}
	if w.Job != nil {
		l.Buffer, l.Warn = w.Job.Name, r.Job.Warn
		create = append(create, *w.Job)
	}
	create = append(create, w.Creates...)
	l.Uses = w.Uses
	for i := range w.Creates {
		l.Uses = append(l.Uses, w.Creates[i].Name) // as long as the job runs
	}
	for _, d := range w.Destroys {
		l.Destroys = append(l.Destroys, admin.LifetimeEnd{Buffer: d.Name, Discard: d.Hurry})
	}
	for _, s := range w.In {
		l.In = append(l.In, admin.LifetimeStage{Buffer: s.Buffer, Path: s.Path, URL: s.URL, ContinueOnError: s.ContinueOnError})
	}
	for _, s := range w.Out {
		l.Out = append(l.Out, admin.LifetimeStage{Buffer: s.Buffer, Path: s.Path, URL: s.URL, OnSuccess: s.OnSuccess})
	}
	return create, nil
}
