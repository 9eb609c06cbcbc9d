package gossip

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSources(t *testing.T) {
	t.Setenv("SLURM_JOB_NODELIST", "job[1-2]")
	file := filepath.Join(t.TempDir(), "members")
	text := "# members\na:1 # one\n\n dns:b:2,c:3\nslurm:n[1-2]:4\nnonsense\nfile:/etc/passwd\nd:5"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for join, want := range map[string]string{
		"a:1, b:2":          "a:1 b:2",
		"[::1]:7":           "[::1]:7",
		"dns:members.org:7": "members.org:7",
		"slurm:n[1-2,4]:7":  "n1:7 n2:7 n4:7",
		"slurm:7":           "job1:7 job2:7",
		"file:" + file:      "a:1 b:2 c:3 n1:4 n2:4 d:5",
	} {
		sources, err := parseSources(join)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, s := range sources {
			addresses, err := s.expand()
			if (err != nil) != (s.kind == "file") {
				t.Errorf("%s: %v", join, err)
			}
			got = append(got, addresses...)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", join, got, want)
		}
	}
}
