package ops

import (
	"testing"

	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metapb"
	"forebay/meta/metatest"
)

func TestNewerFieldsStay(t *testing.T) {
	t.Parallel()
	s := metatest.StartServer(t, t.TempDir())
	m := operationsOn(t, conn.Options{InProcess: s})
	ctx := metatest.Context(t)
	id := submit(t, m, Operation{Kind: Drain, Buffer: "buf"}, Task{ID: "t"})
	b, err := m.records(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var (
		job  metapb.Job
		task metapb.Task
	)
	kvtest.AddUnknown(t, b, operationKey(id), &job)
	kvtest.AddUnknown(t, b, taskKey(id, "t"), &task)
	l := nextTask(t, m, "n1")
	kvtest.WantUnknown(t, b, taskKey(id, "t"), &task)
	if err := l.Done(ctx, Tally{Files: 1}); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, b, taskKey(id, "t"), &task)
	id = submit(t, m, Operation{Kind: Drain, Buffer: "buf"}, Task{ID: "t"})
	kvtest.AddUnknown(t, b, operationKey(id), &job)
	if err := m.Cancel(ctx, id); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, b, operationKey(id), &job)
}
