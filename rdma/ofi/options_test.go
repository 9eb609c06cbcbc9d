package ofi

import (
	"strings"
	"testing"

	"forebay/rdma/ofi/fi"
)

func TestOptionsValidate(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Fatal(err)
	}
	err := Options{Depth: -1, Chunk: 1, Window: 4096, Want: fi.Want{Endpoint: "x"}}.Validate()
	for _, name := range []string{"Depth", "Chunk", "Window", "endpoint"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in %v", name, err)
		}
	}
}
