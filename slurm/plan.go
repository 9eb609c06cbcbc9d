package slurm

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm/directive"
)

// PlanInput is the input of Plan.
type PlanInput struct {
	Work  *directive.Work
	Pool  string            // that the capacity is taken from: memory, disk
	Nodes []admin.Node      // the daemons
	Jobs  []admin.Operation // stage-ins, stage-outs and drains of the last day
	Flows []Flow            // present flushes of buffers, with their targets
	Sizes []int64           // of each stage-in in bytes; negative: unknown
}

// Flow is the store behind a buffer.
type Flow struct {
	Buffer, Backing string
	Rate            float64 // bytes a second to the store, lately
}

// Plan has whether a job's buffer will fit, and the time that its data will need. A figure that was
// not measured is nil. Nothing is guessed.
type Plan struct {
	Capacity int64  `json:"capacity"` // bytes that the job requests; 0: no limit of its own
	Pool     string `json:"pool"`
	Total    int64  `json:"total"` // bytes of the pool
	Free     int64  `json:"free"`  // now
	Nodes    int    `json:"nodes"` // that take writes
	Fits     Fit    `json:"fits"`

	In    []PlannedCopy `json:"stage_in"`
	Out   []PlannedCopy `json:"stage_out"`
	Drain *PlannedCopy  `json:"drain,omitempty"` // of the buffer to its store, at most
}

// Fit is whether, and when, a capacity is available.
type Fit string

// The fits.
const (
	FitsNow   Fit = "now"
	FitsLater Fit = "later" // when other buffers have drained
	FitsNever Fit = "never"
)

// PlannedCopy is one copy between a store and a buffer.
type PlannedCopy struct {
	URL     string   `json:"url"`
	Bytes   *int64   `json:"bytes"`   // nil: unknown before it is done
	AtMost  bool     `json:"at_most"` // of bytes, and so of seconds
	Rate    *float64 `json:"rate"`    // bytes a second; nil: not measured
	From    string   `json:"rate_from,omitempty"`
	Seconds *float64 `json:"seconds"` // nil: bytes or rate are unknown
}

// MakePlan compares a job's requests with the present state and measured rates.
func MakePlan(in *PlanInput) Plan {
	p := Plan{Pool: in.Pool, In: []PlannedCopy{}, Out: []PlannedCopy{}}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.State != "ready" || n.Refused != "" {
			continue
		}
		tier := n.Memory
		if in.Pool == "disk" {
			tier = n.Disk
		}
		p.Nodes, p.Total, p.Free = p.Nodes+1, p.Total+tier.Capacity, p.Free+tier.Free
	}
	if in.Work.Job != nil {
		p.Capacity = in.Work.Job.Capacity
	}
	for i := range in.Work.Creates {
		p.Capacity += in.Work.Creates[i].Capacity
	}
	switch {
	case p.Capacity <= p.Free:
		p.Fits = FitsNow
	case p.Capacity <= p.Total:
		p.Fits = FitsLater
	default:
		p.Fits = FitsNever
	}
	for i, s := range in.Work.In {
		c := PlannedCopy{URL: s.URL}
		if in.Sizes[i] >= 0 {
			c.Bytes = &in.Sizes[i]
		}
		c.measure(in, "stage-in")
		p.In = append(p.In, c)
	}
	atMost := func(url, kind string) PlannedCopy {
		c := PlannedCopy{URL: url}
		if p.Capacity > 0 {
			c.Bytes, c.AtMost = &p.Capacity, true
		}
		c.measure(in, kind)
		return c
	}
	for _, s := range in.Work.Out {
		p.Out = append(p.Out, atMost(s.URL, "stage-out"))
	}
	if in.Work.Job != nil && in.Work.Job.Backing != "" {
		c := atMost(in.Work.Job.Backing, "drain")
		p.Drain = &c
	}
	return p
}

// measure finds the rates of such copies.
func (c *PlannedCopy) measure(in *PlanInput, kind string) {
	rate, from := measured(in, kind, storeOf(c.URL))
	if rate <= 0 {
		return
	}
	c.Rate, c.From = &rate, from
	if c.Bytes != nil {
		seconds := float64(*c.Bytes) / rate
		c.Seconds = &seconds
	}
}

// The shortest copy whose rate counts.
const (
	minBytes = 1 << 20
	minTime  = 100 * time.Millisecond
)

// measured is the median rate of copies of one kind with one store, in bytes a second, and where it
// is from, or 0 if none was measured.
func measured(in *PlanInput, kind, store string) (rate float64, from string) {
	var rates []float64
	for i := range in.Jobs {
		j := &in.Jobs[i]
		took := j.Ended.Sub(j.Created)
		url := j.URL
		if j.Kind == "drain" {
			url = backingOf(in.Flows, j.Buffer)
		}
		if j.Kind == kind && j.State == "done" && j.BytesDone >= minBytes && took >= minTime && storeOf(url) == store {
			rates = append(rates, float64(j.BytesDone)/took.Seconds())
		}
	}
	if len(rates) > 0 {
		slices.SortFunc(rates, cmp.Compare[float64])
		return rates[len(rates)/2], "the last day's"
	}
	if kind == "stage-in" {
		return 0, ""
	}
	for i := range in.Flows {
		if storeOf(in.Flows[i].Backing) == store {
			rate += in.Flows[i].Rate
		}
	}
	return rate, "the current flushes"
}

func backingOf(flows []Flow, buffer string) string {
	for i := range flows {
		if flows[i].Buffer == buffer {
			return flows[i].Backing
		}
	}
	return ""
}

// storeOf names the part of a URL that has a speed of its own: a bucket at an endpoint, or the
// first name of a path, as file systems are mounted. "": no store.
func storeOf(url string) string {
	b, err := bb.ParseBacking(url)
	switch {
	case err != nil:
		return ""
	case !b.IsDirectory():
		return b.Scheme + "://" + b.Bucket + "@" + b.Endpoint()
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(b.Path, "/"), "/")
	return "file:///" + first
}
