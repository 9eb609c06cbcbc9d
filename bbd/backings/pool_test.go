package backings

import "testing"

// The bounds of a store hold for all buffers that flush to it, wherever it is mounted.
func TestMountOf(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /lustre rw,relatime shared:9 - lustre mds@tcp:/fs rw
31 22 0:41 / /lustre2 rw,relatime - lustre mds@tcp:/other rw
32 22 0:40 /home /home\040dirs rw,relatime - lustre mds@tcp:/fs rw
33 30 0:50 / /lustre/nfs rw - nfs4 server:/x rw
34 30 0:51 / /lustre/nfs rw - nfs4 server:/covers rw
`
	for path, want := range map[string][2]string{
		"/":                {"8:1", "ext4"},
		"/data":            {"8:1", "ext4"},
		"/lustre":          {"0:40", "lustre"},
		"/lustre/a/b":      {"0:40", "lustre"},
		"/lustre2/a":       {"0:41", "lustre"},
		"/lustre3":         {"8:1", "ext4"},
		"/home dirs/alice": {"0:40", "lustre"},
		"/lustre/nfs/a":    {"0:51", "nfs4"},
	} {
		device, kind := mountOf(mounts, path)
		if got := [2]string{device, kind}; got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
		if of := isOfServers(kind); of == (kind == "ext4") {
			t.Errorf("%s, on %s: of servers %v", path, kind, of)
		}
	}
	if device, kind := mountOf("", "/x"); device != "" || kind != "" || isOfServers(kind) {
		t.Errorf("without mounts: %q, %q", device, kind)
	}
}

// TestInDirectory: a directory is one by its kind, and only after it was looked up.
func TestInDirectory(t *testing.T) {
	t.Parallel()
	pool := New(t.Context(), Options{})
	const dir, service, bad = "file:///srv/out", "s3://file/x?endpoint=https://file.example", "nothing://x"
	if pool.InDirectory(dir) {
		t.Error("a directory that was not looked up counts as one")
	}
	for url, want := range map[string]bool{dir: true, service: false, bad: false, "": false} {
		pool.LookUp(url)
		if got := pool.InDirectory(url); got != want {
			t.Errorf("%q: %v, want %v", url, got, want)
		}
	}
}
