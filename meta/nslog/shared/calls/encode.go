package calls

import (
	"io/fs"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/shared/callpb"
)

// EncodeCall returns the bytes of a call. Invalid if an entry of it may not be stored.
func EncodeCall(c *Call) ([]byte, error) {
	m := &callpb.Call{
		Op: uint32(c.Op), Owner: c.Owner[:], From: string(c.From), Dir: uint64(c.Dir), Name: c.Name, ToDir: uint64(c.ToDir), ToName: c.ToName,
		File: uint64(c.File), Revision: c.Revision, Number: int64(c.Number), Node: string(c.Node), All: c.All, Restores: c.Restores,
	}
	if c.Life != [16]byte{} {
		m.Life = c.Life[:]
	}
	if c.ID.Number != 0 || c.Op == OpEndSession {
		m.Id = &callpb.ChangeID{Session: c.ID.Session[:], Number: c.ID.Number, Answered: c.ID.Answered}
	}
	var err error
	if c.Entry.Type != 0 {
		if m.Entry, err = entryMessage(&c.Entry); err != nil {
			return nil, err
		}
	}
	if a := &c.Attr; *a != (namespace.Attr{}) {
		m.Attr = &callpb.Attr{Uid: a.UID, Gid: a.GID, Revision: a.Revision}
		if x := a.Xattr; x != nil {
			m.Attr.Xattr = &callpb.Xattr{Op: uint32(x.Op), Name: []byte(x.Name), Value: []byte(x.Value)}
		}
		if a.Mode != nil {
			m.Attr.Mode = new(uint32(a.Mode.Perm()))
		}
		if a.MTime != nil {
			m.Attr.Mtime = kv.Nanos(*a.MTime)
		}
	}
	if d := &c.Directory; *d != (Directory{}) {
		m.Directory = &callpb.Directory{Uid: d.UID, Gid: d.GID, Mode: uint32(d.Mode.Perm()), Mtime: kv.Nanos(d.MTime)}
	}
	if c.Options != (CallOptions{}) {
		m.Options = &callpb.Options{Replace: c.Options.Replace, StoreOp: c.Options.StoreOp, Revision: c.Options.Revision, From: c.Options.From, To: c.Options.To}
	}
	for i := range c.Changes {
		change := &c.Changes[i]
		m.Changes = append(m.Changes, &callpb.RecordChange{Key: change.Key, Data: change.Data, Expected: change.Expected, Check: change.Check})
	}
	return marshal(m)
}

func marshal(m proto.Message) ([]byte, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Invalid, Op: "encode", Path: "a call of the namespace's owner", Err: err}
	}
	return b, nil
}

// DecodeCall returns the call of bytes. Checksum if they are not one.
func DecodeCall(b []byte) (*Call, error) {
	m := &callpb.Call{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, Malformed(err)
	}
	c := &Call{
		Op: Op(m.GetOp()), From: bb.NodeID(m.GetFrom()), Dir: bb.DirID(m.GetDir()), Name: m.GetName(), ToDir: bb.DirID(m.GetToDir()), ToName: m.GetToName(),
		File: bb.FileID(m.GetFile()), Revision: m.GetRevision(), Number: int(m.GetNumber()), Node: bb.NodeID(m.GetNode()), All: m.GetAll(), Restores: m.GetRestores(),
	}
	copy(c.Owner[:], m.GetOwner())
	copy(c.Life[:], m.GetLife())
	if id := m.GetId(); id != nil {
		copy(c.ID.Session[:], id.GetSession())
		c.ID.Number, c.ID.Answered = id.GetNumber(), id.GetAnswered()
	}
	if m.GetEntry() != nil {
		e, err := openEntry(m.GetEntry())
		if err != nil {
			return nil, err
		}
		c.Entry = *e
	}
	if a := m.GetAttr(); a != nil {
		c.Attr = namespace.Attr{UID: a.Uid, GID: a.Gid, Revision: a.GetRevision()}
		if x := a.GetXattr(); x != nil {
			c.Attr.Xattr = &xattr.Change{Op: xattr.Op(x.GetOp()), Name: string(x.GetName()), Value: string(x.GetValue())}
		}
		if a.Mode != nil {
			c.Attr.Mode = new(fs.FileMode(a.GetMode()).Perm())
		}
		if a.Mtime != nil {
			c.Attr.MTime = new(kv.FromNanos(a.Mtime))
		}
	}
	if d := m.GetDirectory(); d != nil {
		c.Directory = Directory{namespace.Owner{UID: d.GetUid(), GID: d.GetGid(), Mode: fs.FileMode(d.GetMode()).Perm()}, kv.FromNanos(d.Mtime)}
	}
	if o := m.GetOptions(); o != nil {
		c.Options = CallOptions{Replace: o.GetReplace(), StoreOp: o.GetStoreOp(), Revision: o.GetRevision(), From: o.GetFrom(), To: o.GetTo()}
	}
	for _, change := range m.GetChanges() {
		c.Changes = append(c.Changes, kv.Change{Key: change.GetKey(), Data: change.GetData(), Expected: change.GetExpected(), Check: change.GetCheck()})
	}
	return c, nil
}

// Malformed is the error of a message that cannot be decoded.
func Malformed(err error) error {
	return &bb.Error{Kind: bb.Checksum, Op: "decode", Path: "a message between owners of a namespace", Err: err}
}

func entryMessage(e *bb.Entry) (*callpb.Entry, error) {
	value, err := record.AppendEntry(nil, e)
	if err != nil {
		return nil, err
	}
	return &callpb.Entry{
		Parent: uint64(e.Parent), Name: e.Name, Revision: e.Revision, Entry: value,
		ClosedGeneration: uint64(e.Closed.Generation), ClosedRevision: e.Closed.Revision,
	}, nil
}

func openEntry(m *callpb.Entry) (*bb.Entry, error) {
	e, err := record.OpenEntry(bb.DirID(m.GetParent()), m.GetName(), m.GetEntry(), m.GetRevision())
	if err != nil {
		return nil, err
	}
	// Revision 0 is that of the change that stores the entry, which has another one yet.
	e.Closed = bb.Closing{Generation: bb.Generation(m.GetClosedGeneration()), Revision: m.GetClosedRevision()}
	return &e, nil
}

// EncodeAnswer returns the bytes of an answer.
func EncodeAnswer(a *Answer) ([]byte, error) {
	m := &callpb.Answer{
		Status: uint32(a.Status), Owner: a.Owner[:], Revised: a.Revised, Dir: uint64(a.Dir), Name: a.Name, Revision: a.Revision, Count: int64(a.Count), Yes: a.Yes,
		Failure: failureMessage(a.Failure),
	}
	if a.Lease != (lease.Grant{}) {
		m.Lease = &callpb.Lease{Session: a.Lease.Session, Term: int64(a.Lease.Term), Listing: a.Lease.Listing}
	}
	for i := range a.Entries {
		e, err := entryMessage(&a.Entries[i])
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, e)
	}
	var err error
	if a.Entry.Type != 0 {
		if m.Entry, err = entryMessage(&a.Entry); err != nil {
			return nil, err
		}
	}
	if a.Replaced != nil {
		if m.Replaced, err = entryMessage(a.Replaced); err != nil {
			return nil, err
		}
	}
	for i := range a.Ops {
		m.Ops = append(m.Ops, &callpb.StoreOp{Revision: a.Ops[i].Revision, Op: record.OpValue(&a.Ops[i])})
	}
	for i := range a.Records {
		r := &a.Records[i]
		m.Records = append(m.Records, &callpb.Record{Key: r.Key, Revision: r.Seq, Data: r.Data})
	}
	return marshal(m)
}

// DecodeAnswer returns the answer of bytes. Checksum if they are not one.
func DecodeAnswer(b []byte) (*Answer, error) {
	m := &callpb.Answer{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, Malformed(err)
	}
	a := &Answer{
		Status: Status(m.GetStatus()), Revised: m.GetRevised(), Dir: bb.DirID(m.GetDir()), Name: m.GetName(), Revision: m.GetRevision(),
		Count: int(m.GetCount()), Yes: m.GetYes(), Failure: openFailure(m.GetFailure()),
	}
	copy(a.Owner[:], m.GetOwner())
	a.Lease = lease.Grant{Session: m.GetLease().GetSession(), Term: time.Duration(m.GetLease().GetTerm()), Listing: m.GetLease().GetListing()}
	for _, one := range m.GetEntries() {
		e, err := openEntry(one)
		if err != nil {
			return nil, err
		}
		a.Entries = append(a.Entries, *e)
	}
	if m.GetEntry() != nil {
		e, err := openEntry(m.GetEntry())
		if err != nil {
			return nil, err
		}
		a.Entry = *e
	}
	if m.GetReplaced() != nil {
		e, err := openEntry(m.GetReplaced())
		if err != nil {
			return nil, err
		}
		a.Replaced = e
	}
	for _, one := range m.GetOps() {
		op, err := record.OpenOp(one.GetOp(), one.GetRevision())
		if err != nil {
			return nil, err
		}
		a.Ops = append(a.Ops, *op)
	}
	for _, r := range m.GetRecords() {
		a.Records = append(a.Records, kv.Record{Key: r.GetKey(), Seq: r.GetRevision(), Data: r.GetData()})
	}
	return a, nil
}

// failureMessage is a failure on the wire, with texts that may name files with any names.
func failureMessage(f *Failure) *callpb.Failure {
	if f == nil {
		return nil
	}
	return &callpb.Failure{
		Kind: uint32(f.Kind), Op: text(f.Op), Path: text(f.Path), Node: string(f.Node), Reason: text(f.Reason), Remedy: text(f.Remedy),
		Unknown: f.Unknown, Conflict: f.Conflict, Unfolded: uint64(f.Unfolded),
	}
}

// text is a text in UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func openFailure(m *callpb.Failure) *Failure {
	if m == nil {
		return nil
	}
	return &Failure{
		Kind: bb.Kind(m.GetKind()), Op: m.GetOp(), Path: m.GetPath(), Node: bb.NodeID(m.GetNode()), Reason: m.GetReason(), Remedy: m.GetRemedy(),
		Unknown: m.GetUnknown(), Conflict: m.GetConflict(), Unfolded: bb.TxnID(m.GetUnfolded()),
	}
}
