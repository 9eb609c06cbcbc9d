package lustre

import (
	"slices"
	"testing"
	"testing/fstest"
)

// The imports of each release are found, and those without a connection are named with their state.
func TestSilentImports(t *testing.T) {
	text := func(target, state, flags string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("import:\n    name: " + target + "-osc-ff\n    target: " + target + "_UUID\n    state: " + state +
			"\n    instance: 2\n    connect_flags: [ write_grant ]\n    connect_data:\n       target_version: 2.15.5.0\n    import_flags: [ " + flags + " ]\n")}
	}
	got := silentImports(fstest.MapFS{
		"sys/kernel/debug/lustre/osc/b-OST0000-osc-ff/import": text("b-OST0000", "FULL", "replayable, pingable"),
		"sys/kernel/debug/lustre/osc/b-OST0001-osc-ff/import": text("b-OST0001", "DISCONN", "replayable, pingable"),
		"sys/kernel/debug/lustre/osc/b-OST0001-osc-ee/import": text("b-OST0001", "DISCONN", "replayable, pingable"), // a second mount
		"sys/kernel/debug/lustre/osc/b-OST0002-osc-ff/import": text("b-OST0002", "FULL", "invalid, deactive"),
		"sys/kernel/debug/lustre/osc/b-OST0003-osc-ff/import": text("b-OST0003", "IDLE", ""),
		"sys/kernel/debug/lustre/mdc/b-MDT0000-mdc-ff/import": text("b-MDT0000", "REPLAY_WAIT", ""),
		"sys/kernel/debug/lustre/mgc/MGC10.0.0.1@tcp/import":  text("MGS", "DISCONN", ""),
		"proc/fs/lustre/osc/a-OST0001-osc-ff/import":          text("a-OST0001", "EVICTED", ""),
		"proc/fs/lustre/osc/a-OST0002-osc-ff/import":          {Data: []byte("import:\n")},
		"proc/fs/lustre/osc/a-OST0003-osc-ff/state":           {Data: []byte("current_state: DISCONN\n")},
	})
	want := []string{"a-OST0001 (EVICTED)", "b-MDT0000 (REPLAY_WAIT)", "b-OST0001 (DISCONN)", "b-OST0002 (deactivated)"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := silentImports(fstest.MapFS{}); got != nil {
		t.Errorf("without Lustre: %q", got)
	}
	if got := Silent([]string{"b-OST0001", "b-OST00", "c-OST0001"}, want); !slices.Equal(got, append(append(slices.Clone(want[:2]), "b-OST00"), append(want[2:], "c-OST0001")...)) {
		t.Errorf("with what lfs names: %q", got)
	}
}
