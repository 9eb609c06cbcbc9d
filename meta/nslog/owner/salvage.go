package owner

import (
	"context"
	"maps"
	"slices"

	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/stream"
)

// Salvage makes a table of the readable records of a damaged log, across the gaps. So it may have removed entries,
// and lack new ones. The caller closes it.
func Salvage(ctx context.Context, log Log) (*table.Table, error) {
	last, err := log.Last(ctx, logSubject)
	if err != nil {
		return nil, err
	}
	whole := wholePages{newest: map[int]stream.Message{}, broken: map[int]uint64{}}
	var records []stream.Message
	if last.Seq != 0 {
		err = log.ReadAll(ctx, last.Seq, func(m stream.Message) error {
			if m.Subject == logSubject {
				records = append(records, m)
				return nil
			}
			return whole.see(m)
		})
	}
	if err != nil {
		return nil, err
	}
	t := table.New()
	for _, number := range slices.Sorted(maps.Keys(whole.newest)) {
		_, body, err := record.Open(whole.newest[number].Data)
		if err != nil {
			continue
		}
		if number, items, err := record.OpenPage(body); err == nil {
			_ = t.Load(number, items, 1) // up to the first undecodable effect
		}
	}
	for _, m := range records {
		applyReadable(t, m)
	}
	return t, nil
}

// applyReadable carries out the effects of a record, up to the first undecodable one.
func applyReadable(t *table.Table, m stream.Message) {
	kind, body, err := record.Open(m.Data)
	if err != nil {
		return
	}
	h, effects, err := record.OpenHead(kind, body)
	if err != nil || kind != record.Changes {
		return
	}
	_, _ = record.Effects(effects, h.First, func(f record.Effect) error { return t.Apply(f, m.Seq) })
}
