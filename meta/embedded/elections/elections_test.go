package elections

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestLinked fails if the names of this package are not those of the server's variables any more: they are 0 then at first.
func TestLinked(t *testing.T) {
	const lookedUp = "2.15.2"
	if server.VERSION != lookedUp {
		t.Errorf("nats-server is %s, and its variables were looked up in %s: see minElectionTimeout in server/raft.go, and for an option that replaces it", server.VERSION, lookedUp)
	}
	if its := [2]time.Duration{4 * time.Second, 9 * time.Second}; former != its {
		t.Errorf("nats-server's own bounds are %v, expected %v", former, its)
	}
	if minElectionTimeout != shortest || maxElectionTimeout != Longest {
		t.Errorf("the bounds are %v and %v", minElectionTimeout, maxElectionTimeout)
	}
}
