package bbd_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"forebay/client/admin"
)

// TestFlushRuleReceipt: the receipt names the steps that are not on the store, since newer ones are complete, and so does a
// comparison of the store with it.
func TestFlushRuleReceipt(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{Receipt: true}, "step-*/=every 5")
	for i := 4; i <= 7; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	want := []string{"step-4", "step-6"}
	r.want(want, "map[step-5:3 step-7:3]")
	var receipt bytes.Buffer
	if err := admin.Receipt(t.Context(), r.c, "ckpt", &receipt); err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(receipt.Bytes(), []byte("\n"))
	step := `{"step":"step-4","by":"step-7","files":3,"bytes":1506}`
	if !bytes.Contains(head, []byte(step)) || !bytes.Contains(head, []byte(`"superseded_total":2`)) {
		t.Errorf("the receipt begins with %s, want %s in it", head, step)
	}
	report, err := admin.Verify(t.Context(), r.c, &receipt, admin.VerifyOptions{Deep: true})
	if err != nil || report.FilesDone != 6 || !slices.Equal(report.Superseded, want) || report.SupersededTotal != 2 {
		t.Errorf("verify: %+v, %v", report, err)
	}
}
