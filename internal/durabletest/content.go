// Package durabletest checks durability. It takes a history of clients' requests and their answers, and of
// faults, and observations of files, and returns the broken guarantees. It must never depend on daemons, stores
// or storage.
package durabletest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"forebay/internal/checksum"
)

// Version is the content of a file, known by its size and checksum. The zero Version
// is no file.
type Version struct {
	There bool
	Size  int64
	Sum   uint64 // CRC-64/NVME
}

// Absent is the version of a name that leads to nothing.
var Absent Version

// Of returns the version that bytes are.
func Of(p []byte) Version { return Version{true, int64(len(p)), checksum.Sum(p)} }

func (v Version) String() string {
	if !v.There {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes with checksum %016x", v.Size, v.Sum)
}

// Content is the result of writes to a file, one after the other.
type Content struct {
	writes []write
	size   int
}

type write struct {
	id        uint64
	off, size int
}

// With returns the content after one more write, whose id no other write has.
func (c Content) With(id uint64, off, size int) Content {
	return Content{append(c.writes[:len(c.writes):len(c.writes)], write{id, off, size}), max(c.size, off+size)}
}

// Size returns the number of bytes.
func (c Content) Size() int { return c.size }

// Bytes returns the content. Bytes that no write has touched are zero.
func (c Content) Bytes() []byte {
	p := make([]byte, c.size)
	for _, w := range c.writes {
		Fill(p[w.off:w.off+w.size], w.id, w.off)
	}
	return p
}

// Bytes describe themselves. A file is a row of cells. Each of those that a write touches holds, as
// far as the write goes:
//
//	0   id of the write
//	8   number of the cell, from the start of the file
//	16  two words that follow from both
const cell = 32

// Fill makes p the bytes that a write puts at an offset.
func Fill(p []byte, id uint64, off int) {
	var c [cell]byte
	for n := 0; n < len(p); {
		at := off + n
		fillCell(&c, id, uint64(at/cell))
		n += copy(p[n:], c[at%cell:])
	}
}

func fillCell(c *[cell]byte, id, number uint64) {
	binary.LittleEndian.PutUint64(c[0:], id)
	binary.LittleEndian.PutUint64(c[8:], number)
	m := mix(id ^ mix(number))
	binary.LittleEndian.PutUint64(c[16:], m)
	binary.LittleEndian.PutUint64(c[24:], mix(m))
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Describe names the writes that bytes are of, for the message of a violation.
func Describe(p []byte) string {
	const most = 12
	var runs []string
	var last origin
	begin := 0
	flush := func(end int) {
		if end > begin {
			runs = append(runs, fmt.Sprintf("%d+%d %s", begin, end-begin, last))
		}
	}
	for at := 0; at < len(p); at += cell {
		if from := originOf(p[at:min(at+cell, len(p))], uint64(at/cell)); from != last || at == 0 {
			flush(at)
			last, begin = from, at
		}
	}
	flush(len(p))
	if len(runs) > most {
		runs = append(runs[:most], fmt.Sprintf("and %d more runs", len(runs)-most))
	}
	return strings.Join(runs, ", ")
}

// origin is the source of the bytes of a cell: a write, or the text.
type origin struct {
	write uint64
	text  string
}

func (o origin) String() string {
	if o.text == zeros || o.text == cut || o.text == broken {
		return o.text
	}
	return fmt.Sprintf("of write %d%s", o.write, o.text)
}

const (
	zeros  = "zeros"
	cut    = "cut"
	broken = "cut or of no write"
)

func originOf(p []byte, number uint64) origin {
	var none, want [cell]byte
	if bytes.Equal(p, none[:len(p)]) {
		return origin{text: zeros}
	}
	if len(p) < cell {
		return origin{text: cut}
	}
	id, n := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	fillCell(&want, id, n)
	switch {
	case !bytes.Equal(p, want[:]):
		return origin{text: broken}
	case n != number && n < math.MaxInt64/cell:
		return origin{id, ", for another place"}
	}
	return origin{write: id}
}
