package reader

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/client/internal/region"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
)

// FuzzWindow: no answer of a daemon, however wrong, makes a reader leave the region.
func FuzzWindow(f *testing.F) {
	seed := func(m *wire.Extents) {
		p, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, []byte(nil), int64(0))
	}
	seed(&wire.Extents{Size: 100, Extents: []*wire.Extent{
		{FileOffset: 0, Length: 50, Region: 1, Offset: 10, CheckOffset: 0, CheckLength: 100},
		{FileOffset: 50, Length: 50},
	}})
	seed(&wire.Extents{Extents: []*wire.Extent{{Length: 1 << 62, Region: 1, Offset: 1 << 62, CheckOffset: -1, CheckLength: 1<<63 - 1}}})
	seed(&wire.Extents{Extents: []*wire.Extent{{Length: 4097, Region: 1, CheckLength: 4097}}})
	file := filepath.Join(f.TempDir(), "r")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, message, data []byte, off int64) {
		var m wire.Extents
		if off < 0 || off > bb.MaxFileSize || proto.Unmarshal(message, &m) != nil {
			return
		}
		var a region.Map
		m.Regions, m.Pin = []*wire.Region{{Id: 1, Path: file, Length: 4096}}, 0
		w, err := newWindow(&a, nil, off, &m, data)
		if err == nil && w.len() > 0 {
			p := make([]byte, min(w.len(), 10_000))
			for _, check := range []bool{false, true} {
				if n, err := w.copyTo(p, w.off, check); err == nil && n != len(p) {
					t.Errorf("%d of %d bytes were copied", n, len(p))
				}
			}
			w.release()
		}
		a.Close()
		if a.Len() != 0 {
			t.Error("the region is left")
		}
		// The same about memory that cannot be mapped.
		m.Regions = []*wire.Region{{Id: 1, Key: make([]byte, rdma.RemoteKeySize), Length: 4096}}
		w, err = newWindow(nil, &session.Session{Welcome: &wire.Welcome{}, Remote: &session.Remote{}}, off, &m, data)
		if err != nil {
			return
		}
		for i := range w.parts {
			p := &w.parts[i]
			if f := p.remote; f != nil && (f.off < 0 || f.length <= 0 || f.off+f.length > 4096 || f.cut < 0 || f.cut+p.len() > f.length) {
				t.Errorf("an extent leaves its region: %+v of %v", f, p.span)
			}
		}
	})
}
