package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/flusher/backing"
	"forebay/flusher/backing/open"
	"forebay/internal/bb"
)

// leftover is the line of doctor --clean for one piece of unfinished work.
type leftover struct {
	URL   string `json:"url"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	State string `json:"state"` // as below
	Why   string `json:"why,omitempty"`
}

// The states of a leftover.
const (
	isRemoved = "removed"
	isGone    = "would be removed"
	isLeft    = "left"
)

// ends has the daemons that have ended, as a running daemon reports them.
type ends struct {
	instance, life string          // of the answering daemon; no life: it is an older release
	earlier        map[string]bool // instances that its state folder had before
	gone, living   map[string]bool // instances of the cluster's nodes
}

// Ended is that of backing.Peers. An unknown daemon may run.
func (e *ends) Ended(instance bb.InstanceID, life uint64) bool {
	id := instance.String()
	switch {
	case id == e.instance:
		return e.life != "" && bb.InstanceID(life).String() != e.life
	case e.living[id]:
		return false
	}
	return e.earlier[id] || e.gone[id]
}

// why returns the reason why unfinished work is left alone.
func (e *ends) why(instance bb.InstanceID) string {
	switch id := instance.String(); {
	case id == e.instance:
		return "this node's daemon may be writing it"
	case e.living[id]:
		return "its daemon runs, and removes unneeded files itself"
	default:
		return "no daemon here has a record of it: it may be another cluster's, or a user's"
	}
}

// endsOf requests the ends from a daemon.
func endsOf(ctx context.Context, c *client.Client) (*ends, error) {
	var s struct {
		Instance, Life string
		Earlier        []string
	}
	text, err := admin.Status(ctx, c, "")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, err
	}
	e := &ends{instance: s.Instance, life: s.Life, earlier: map[string]bool{}, gone: map[string]bool{}, living: map[string]bool{}}
	for _, id := range s.Earlier {
		e.earlier[id] = true
	}
	nodes, err := admin.Nodes(ctx, c)
	if err != nil && bb.KindOf(err) != bb.Unsupported { // a daemon that is alone
		return nil, err
	}
	for _, n := range nodes {
		if n.State == "dead" || n.State == "left" {
			e.gone[n.Instance] = true
		} else {
			e.living[n.Instance] = true
		}
	}
	return e, nil
}

// clean finds the remains of killed daemons below the stores of all buffers and of the named ones,
// and removes them. It does so with the user's own rights.
func cleanStores(ctx context.Context, a *app.App, stores []string, dryRun bool) error {
	c, err := a.Connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	known, err := endsOf(ctx, c)
	if err != nil {
		return err
	}
	specs, err := admin.Buffers(ctx, c)
	if err != nil {
		return err
	}
	for i := range specs {
		stores = append(stores, specs[i].Backing)
	}
	all, failed, seen := []leftover{}, 0, map[string]bool{"": true}
	for _, url := range stores {
		url = app.StoreURL(url)
		if seen[url] {
			continue
		}
		seen[url] = true
		found, err := cleanStore(ctx, url, known, dryRun)
		if all = append(all, found...); err != nil {
			failed++
			fmt.Fprintln(a.Err, "bbctl:", app.OneLineOf(err))
		}
	}
	if err := a.Print(all, func() { tableOf(a, all) }); err != nil {
		return err
	}
	if failed > 0 {
		return app.Partly(fmt.Errorf("doctor --clean: %s could not be read completely", bb.Count(int64(failed), "store")))
	}
	return nil
}

// tableOf prints leftovers, and the reasons why some are left.
func tableOf(a *app.App, all []leftover) {
	rows := make([][]string, 0, len(all))
	for i := range all {
		l := &all[i]
		rows = append(rows, []string{l.State, app.Size(l.Bytes), shown(strings.TrimSuffix(l.URL, "/") + "/" + l.Name), l.Why})
	}
	a.Table(rows)
	if len(all) == 0 {
		fmt.Fprintln(a.Out, "no daemon has left anything unfinished")
	}
}

// shown is a name as a terminal may get it.
func shown(name string) string {
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// cleanStore examines everything below a URL.
func cleanStore(ctx context.Context, url string, known *ends, dryRun bool) ([]leftover, error) {
	store, err := open.Open(ctx, url, open.Options{Owner: backing.Owner{Peers: known}})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	found, err := store.Leftovers(ctx, backing.Within{Deep: true, Remove: !dryRun})
	var all []leftover
	for i := range found {
		all = append(all, leftoverOf(url, &found[i], known))
	}
	return all, err
}

func leftoverOf(url string, f *backing.Leftover, known *ends) leftover {
	where, _, _ := strings.Cut(url, "?") // the options of an object store are no part of names
	l := leftover{URL: where, Name: f.Name, Bytes: f.Size, State: isLeft}
	switch {
	case f.Removed:
		l.State = isRemoved
	case f.Ended:
		l.State = isGone
	default:
		l.Why = known.why(f.Instance)
	}
	return l
}
