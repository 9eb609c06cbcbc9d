package clustertest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
)

// Op names an operation of the workload.
type Op string

// The operations. Files are their client's own, but for Create. All clients try to make the same
// files, and one of them succeeds with each.
const (
	Put    Op = "put"    // make a version the content of Path: create, write, close
	Sync   Op = "sync"   // commit more of a content, of which a version is in Path or nothing
	Create Op = "create" // make Path, exclusively, with a version
	Rename Op = "rename" // move a version from Path to To
	Remove Op = "remove"
	Read   Op = "read" // find a version in Path
	List   Op = "list" // find names in the directory Path
)

// OK is the outcome of an operation that was done. Others are kinds of errors.
const OK = "ok"

// Record is one operation of one client. It is written down when it begins, and
// again when it has ended.
type Record struct {
	ID       int           `json:"id"` // counts in a journal, from 1
	Op       Op            `json:"op"`
	Path     string        `json:"path"`
	To       string        `json:"to,omitempty"`
	Version  Version       `json:"version,omitzero"` // written, moved or read
	Names    []string      `json:"names,omitempty"`  // of a listing
	Begin    int64         `json:"begin"`            // CLOCK_MONOTONIC, in nanoseconds; one clock for all processes of a machine
	End      int64         `json:"end,omitempty"`    // 0: it has not ended
	Deadline time.Duration `json:"deadline"`         // how long it may take
	Outcome  string        `json:"outcome,omitempty"`
	Why      string        `json:"why,omitempty"`
	Node     string        `json:"node,omitempty"`    // the client's
	Holders  []string      `json:"holders,omitempty"` // nodes that then held the committed bytes
}

// Journal is the record of one client's operations, in order. One operation begins when the one
// before has ended.
type Journal struct {
	Client  string
	Records []Record
	Killed  int64 // when the client was killed; 0: it ended in order
}

// Now reads the clock of records.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // it needs no right and cannot be missing
	}
	return t.Nano()
}

// ReadJournal reads a client's journal. A last line that a kill cut off is left out.
func ReadJournal(name, file string) (Journal, error) {
	j := Journal{Client: name}
	f, err := os.Open(file)
	if err != nil {
		return j, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return j, nil
		}
		var r Record
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		switch {
		case err != nil:
			return j, err
		case r.ID == len(j.Records):
			j.Records[r.ID-1] = r
		default:
			j.Records = append(j.Records, r)
		}
	}
}

// log writes a journal. Each record is in the kernel's hands before the operation goes
// on, so that it outlives the process.
type log struct {
	file *os.File
	id   int
}

func (l *log) begin(r *Record) error {
	l.id++
	r.ID, r.Begin = l.id, Now()
	return l.write(r)
}

// ended records the end of an operation.
func (r *Record) ended(err error) {
	r.End, r.Outcome = Now(), OK
	if err != nil {
		r.Outcome, r.Why = client.KindOf(err).String(), err.Error()
	}
}

func (l *log) write(r *Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}
