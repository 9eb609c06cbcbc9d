package clustertest

import (
	"maps"
	"slices"

	"forebay/client"
	"forebay/internal/durabletest"
)

// StoreLook is the result of StoreFiles for the backing store at some moment of a time.
type StoreLook struct {
	Begin, End int64
	Files      map[string][]byte
}

// LookAtStore reads the files of a store.
func LookAtStore(root string) (l StoreLook, err error) {
	l.Begin = Now()
	l.Files, err = StoreFiles(root)
	l.End = Now()
	return l, err
}

// durable checks contents by the rules of durabletest. Files of a confirmed drain are on the store
// bit for bit, objects on the store stay there, and absent files are named.
func (k *checker) durable(journals []Journal, observations []Observation) {
	d := &durability{checker: k, versions: map[Version]durabletest.Version{Absent: {}}}
	for _, o := range observations {
		for p, s := range o.Files {
			k.hold(p, s.Holders)
		}
	}
	for _, j := range journals {
		for i := range j.Records {
			d.event(&j.Records[i])
		}
	}
	for node, at := range k.world.Gone {
		d.last = max(d.last, at)
		f := durabletest.Event{Op: durabletest.Fault, Outcome: durabletest.Done, Begin: at, End: forever, Node: node}
		if len(k.world.Gone) >= max(1, k.world.Copies) {
			f.Takes = durabletest.InMemory
		}
		d.events = append(d.events, f)
	}
	for _, v := range durabletest.Check(d.events, d.looks(observations)) {
		k.Contents = append(k.Contents, v.String())
	}
}

// durability is a history in the terms of durabletest.
type durability struct {
	*checker
	versions map[Version]durabletest.Version
	events   []durabletest.Event
	last     int64
}

func (d *durability) version(v Version) durabletest.Version {
	found, known := d.versions[v]
	if !known {
		found = durabletest.Of(Content(v.Seed, v.Size))
		d.versions[v] = found
	}
	return found
}

// event takes a record over. Its end is forgotten if its outcome is not certain.
func (d *durability) event(r *Record) {
	d.last = max(d.last, r.Begin, r.End)
	e := durabletest.Event{Op: durabletest.Close, Begin: r.Begin + 1, End: forever, Holders: d.named(r.Path)}
	won := func(other *Record) bool { return other != r && other.Outcome == OK }
	switch {
	case r.Outcome == OK:
		e.Outcome, e.End = durabletest.Done, r.End
	case r.Op == Create && (r.Outcome == client.ErrExists.String() || slices.ContainsFunc(d.attempts[r.Path], won)):
		return // it has made nothing
	}
	switch r.Op {
	case Put, Sync, Create:
		// Before it there may be an empty file, in which nothing was acknowledged.
		empty := durabletest.Event{Op: durabletest.Sync, Begin: r.Begin, End: r.Begin, Holders: e.Holders}
		if e.Outcome != durabletest.Done {
			empty.End = forever
		}
		empty.Changes = []durabletest.Change{{Path: r.Path, Version: durabletest.Of(nil)}}
		d.events = append(d.events, empty)
		e.Changes = []durabletest.Change{{Path: r.Path, Version: d.version(r.Version)}}
	case Rename:
		e.Op, e.Changes = durabletest.Rename, []durabletest.Change{{Path: r.Path}, {Path: r.To, Version: d.version(r.Version)}}
	case Remove:
		e.Op, e.Changes = durabletest.Remove, []durabletest.Change{{Path: r.Path}}
	default:
		return
	}
	d.events = append(d.events, e)
}

// looks takes over the observations. Nothing changed any more when the nodes were read, so they
// count as read before the drain. It had to save the files that they showed.
func (d *durability) looks(observations []Observation) (all []durabletest.Observation) {
	for _, l := range d.world.Looks {
		d.last = max(d.last, l.End)
		all = append(all, durabletest.Observation{Begin: l.Begin, End: l.End, Store: true, Files: found(l.Files), Live: true})
	}
	at := d.last
	tick := func() int64 { at++; return at }
	for _, o := range observations {
		seen := durabletest.Observation{Begin: tick(), End: tick(), Files: map[string]durabletest.Found{}, Lost: o.Lost}
		for _, p := range slices.Concat(slices.Collect(maps.Keys(d.effects)), slices.Collect(maps.Keys(o.Files))) {
			s, is := o.Files[p]
			switch {
			case !is || s.Kind == client.ErrNotFound:
				seen.Files[p] = durabletest.Found{}
			case s.Kind == 0:
				seen.Files[p] = durabletest.Found{Version: d.version(s.Version), Text: s.Version.String()}
			case s.Kind == client.ErrLost:
				seen.Files[p] = durabletest.Found{Problem: durabletest.Lost, Text: s.Why}
			}
		}
		all = append(all, seen)
	}
	if d.world.Store == nil {
		return all
	}
	if d.world.Drained {
		d.events = append(d.events, durabletest.Event{
			Op: durabletest.Drain, Outcome: durabletest.Done, Begin: tick(), End: tick(), Unsaved: slices.Concat(d.world.Unsaved, d.Lost),
		})
	}
	return append(all, durabletest.Observation{Begin: tick(), End: tick(), Store: true, Files: found(d.world.Store)})
}

func found(files map[string][]byte) map[string]durabletest.Found {
	all := make(map[string]durabletest.Found, len(files))
	for p, text := range files {
		all[p] = durabletest.Found{Version: durabletest.Of(text), Text: "as it is in the store"}
		if v, err := Identify(text); err == nil {
			all[p] = durabletest.Found{Version: durabletest.Of(text), Text: v.String()}
		}
	}
	return all
}
