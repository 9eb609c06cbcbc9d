package calls

import (
	"io/fs"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
	"forebay/meta/namespace"
)

// fill sets all that is exported below a value to something that differs from its zero value, and from field to
// field.
func fill(v reflect.Value, rnd *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1+rnd.Int64N(1e9), rnd.Int64N(1e9)).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Rest" {
				fill(v.Field(i), rnd)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), rnd)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), rnd)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rnd)
		}
	case reflect.String:
		v.SetString(string(rune('a' + rnd.IntN(26))))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1 + rnd.Uint64N(255))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + rnd.Uint64N(0o777))
	default:
		v.SetInt(1 + rnd.Int64N(1e6))
	}
}

// entryOf makes an entry one that can be stored.
func entryOf(e *bb.Entry, typ bb.EntryType) {
	e.Type, e.Mode = typ, fs.FileMode(0o640)
	if typ != bb.TypeSymlink {
		e.Target = ""
	}
	e.Xattrs = ""
	if !typ.Special() {
		list, err := xattr.List("").Apply(&xattr.Change{Name: "user.a", Value: "\x00\xff"})
		if err != nil {
			panic(err)
		}
		e.Xattrs = string(list)
	}
	if typ == bb.TypeDirectory {
		e.Flushed = bb.Flushed{} // an entry has one of the two
	} else {
		e.Before.Replaced = bb.Flushed{}
	}
}

// Everything of a call and of an answer arrives.
func TestEncode(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		typ := []bb.EntryType{bb.TypeFile, bb.TypeDirectory, bb.TypeSymlink}[seed%3]
		var c Call
		fill(reflect.ValueOf(&c).Elem(), rnd)
		entryOf(&c.Entry, typ)
		*c.Attr.Mode = c.Attr.Mode.Perm()
		c.Directory.Mode = c.Directory.Mode.Perm()
		for i := range c.Changes { // fields that the engine does not use
			c.Changes[i].Own, c.Changes[i].Gone = 0, 0
		}
		if seed%2 == 0 {
			c.Entry.Closed.Revision = 0 // that of the change
		}
		b, err := EncodeCall(&c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCall(b); err != nil || !reflect.DeepEqual(*got, c) {
			t.Fatalf("a call arrives as\n%+v (%v), want\n%+v", got, err, c)
		}
		var a Answer
		fill(reflect.ValueOf(&a).Elem(), rnd)
		entryOf(&a.Entry, typ)
		entryOf(a.Replaced, typ)
		for i := range a.Entries {
			entryOf(&a.Entries[i], typ)
		}
		for i := range a.Records {
			a.Records[i] = kv.Record{Key: a.Records[i].Key, Seq: a.Records[i].Seq, Data: a.Records[i].Data}
		}
		if b, err = EncodeAnswer(&a); err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeAnswer(b); err != nil || !reflect.DeepEqual(*got, a) {
			t.Fatalf("an answer arrives as\n%+v (%v), want\n%+v", got, err, a)
		}
	}
	for _, c := range []Call{{Op: OpLookup, Name: "f"}, {Op: OpSetAttr, Attr: namespace.Attr{}}} {
		b, err := EncodeCall(&c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCall(b); err != nil || !reflect.DeepEqual(*got, c) {
			t.Errorf("%+v arrives as %+v (%v)", c, got, err)
		}
	}
	if _, err := DecodeCall([]byte("no call")); bb.KindOf(err) != bb.Checksum {
		t.Errorf("what is no call: %v", err)
	}
	if _, err := DecodeAnswer([]byte("no answer")); bb.KindOf(err) != bb.Checksum {
		t.Errorf("what is no answer: %v", err)
	}
}
