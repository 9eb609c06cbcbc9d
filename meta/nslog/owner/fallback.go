package owner

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/stream"
)

// wholePages are the messages of pages and manifests that can be read.
type wholePages struct {
	manifests []stream.Message
	newest    map[int]stream.Message // of each page, its newest message that is whole
	broken    map[int]uint64         // of each page, its newest message that is not
}

// see sorts a message.
func (p *wholePages) see(m stream.Message) error {
	kind, _, err := record.Open(m.Data)
	digits, isPage := strings.CutPrefix(m.Subject, pageSubject)
	number, perr := strconv.Atoi(digits)
	switch {
	case m.Subject == logSubject:
	case !isPage && err == nil && kind == record.Manifest:
		p.manifests = append(p.manifests, m)
	case isPage && perr == nil && err == nil && kind == record.Page:
		p.newest[number] = m
	case isPage && perr == nil:
		p.broken[number] = m.Seq
	}
	return nil
}

// damaged returns the pages of which a message that cannot be read is the newest one, since it has
// to be replaced.
func (p *wholePages) damaged() (numbers []int) {
	for number, seq := range p.broken {
		if p.newest[number].Seq < seq {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// loadOlder makes the table of a checkpoint before the newest one, which cannot be read. It returns
// the reason for that if no other can be read either.
func (w *Owner) loadOlder(ctx context.Context, why error) error {
	whole := wholePages{newest: map[int]stream.Message{}, broken: map[int]uint64{}}
	if err := w.log.ReadAll(ctx, w.at.last, whole.see); err != nil {
		return err
	}
	first := stream.Message{Data: (&record.Contents{Start: 1}).Message()} // before the first checkpoint
	for _, m := range slices.Backward(append([]stream.Message{first}, whole.manifests...)) {
		err := w.loadFrom(ctx, m, &whole)
		switch bb.KindOf(err) {
		case 0:
			w.o.Logger.Error("the newest checkpoint of the namespace is damaged: it is read from one before, and stored again",
				"buffer", w.o.Buffer, "manifest", m.Seq, "err", why)
			w.at.broken = whole.damaged()
			w.at.logged = max(w.at.logged, w.o.CheckpointBytes) // soon
			return nil
		case bb.Lost, bb.Checksum:
			continue
		}
		return err
	}
	return why
}

// loadFrom makes the table of one checkpoint: the newest message of each page that is whole, and the
// log from the manifest on.
func (w *Owner) loadFrom(ctx context.Context, m stream.Message, whole *wholePages) error {
	manifest, err := openManifest(m.Data)
	if err != nil {
		return err
	}
	l := w.beginLoad(manifest)
	w.table.Restore(manifest.Next, manifest.Spans)
	w.at.pages = make([]uint64, len(manifest.Pages))
	for _, number := range slices.Sorted(maps.Keys(whole.newest)) {
		if err := l.page(whole.newest[number]); err != nil {
			return err
		}
	}
	if err := l.finish(ctx, m.Seq); err != nil {
		return err
	}
	return w.coversFrom(manifest.Next)
}

// coversFrom refuses a table with a change, from a revision on, of which the log has no record. It
// was lost with the end of a log which its owner has stored again from memory, and so may others be
// that no page shows.
func (w *Owner) coversFrom(first uint64) (err error) {
	for number := range w.table.Pages() {
		w.table.EachIn(number, first, func(item pages.Item) {
			if !w.table.Covers(item.Revision &^ 1) {
				err = lost("the record of revision " + strconv.FormatUint(item.Revision, 10))
			}
		})
	}
	return err
}
