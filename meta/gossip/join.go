package gossip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/gossip/hostlist"
)

const (
	maxSeedFile  = 1 << 20          // bytes
	enough       = 2                // members that answered, for one round
	maxAttempts  = 16               // addresses tried in one round
	firstRetry   = time.Second / 2  // after the first round; then twice as long, and so on
	longestRetry = 30 * time.Second // between rounds
	maxSkip      = 15               // rounds without a check of the seeds
)

// source is one place to find members: a host, a file or a job's nodes.
type source struct {
	kind string // "host", "file" or "slurm"
	name string // host, path or node list
	port uint16
}

// parseSources reads one of Options.Join.
func parseSources(s string) ([]source, error) {
	bad := func(what, why string) error {
		return bb.E(bb.Invalid, "join", what, why).
			WithRemedy("write host:port, dns:name:port, file:/path or slurm:NODELIST:port")
	}
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		if !strings.HasPrefix(path, "/") {
			return nil, bad(s, "is not an absolute path")
		}
		return []source{{kind: "file", name: path}}, nil
	}
	if rest, ok := strings.CutPrefix(s, "slurm:"); ok {
		list, port, found := cutLast(rest)
		if !found {
			list, port = "", rest
		}
		p, err := strconv.ParseUint(port, 10, 16)
		if err != nil || p == 0 {
			return nil, bad(s, "has no port")
		}
		if list != "" {
			if _, err := hostlist.Expand(list); err != nil {
				return nil, err
			}
		}
		return []source{{kind: "slurm", name: list, port: uint16(p)}}, nil
	}
	var all []source
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		host, port, ok := splitAddress(strings.TrimPrefix(part, "dns:"))
		if !ok || port == 0 {
			return nil, bad(part, "is not host:port")
		}
		all = append(all, source{kind: "host", name: host, port: port})
	}
	return all, nil
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// expand returns the addresses, host:port, that a source names now.
func (s source) expand() ([]string, error) {
	switch s.kind {
	case "file":
		return s.lines()
	case "slurm":
		list := s.name
		if list == "" {
			list = os.Getenv("SLURM_JOB_NODELIST")
		}
		names, err := hostlist.Expand(list)
		for i := range names {
			names[i] = joinAddress(names[i], s.port)
		}
		return names, err
	default:
		return []string{joinAddress(s.name, s.port)}, nil
	}
}

// lines reads a file of hosts. Lines that are wrong do not spoil the others.
func (s source) lines() ([]string, error) {
	info, err := os.Stat(s.name)
	if err != nil {
		return nil, bb.Wrap("join", s.name, err)
	}
	if info.Size() > maxSeedFile {
		return nil, bb.E(bb.Invalid, "join", s.name, "is larger than "+strconv.Itoa(maxSeedFile)+" bytes")
	}
	text, err := os.ReadFile(s.name)
	if err != nil {
		return nil, bb.Wrap("join", s.name, err)
	}
	var all []string
	var errs []error
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		sources, err := parseSources(line)
		errs = append(errs, err)
		for _, l := range sources {
			if l.kind == "file" { // or one could name itself
				errs = append(errs, bb.E(bb.Invalid, "join", s.name, "names another file: "+l.name))
				continue
			}
			addresses, err := l.expand()
			all, errs = append(all, addresses...), append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// seeds returns the addresses that all sources name now, this node's own left out.
func (g *Gossip) seeds() []string {
	var all []string
	for _, j := range g.options.Join {
		sources, err := parseSources(j)
		if err != nil {
			continue // Validate has refused it
		}
		for _, s := range sources {
			addresses, err := s.expand()
			all = append(all, addresses...)
			if err != nil {
				g.log.Warn("gossip: a source of members cannot be read", "join", j, "error", err)
			}
		}
	}
	own := []string{g.Addr(), g.options.Listen, g.options.Advertise}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return slices.Contains(own, a) })
}

// join searches members until Close: any while there are none, and then, now and then, missing
// ones. memberlist drops the dead. Without this search, two halves of a cluster would never meet
// again, nor two clusters that began apart.
func (g *Gossip) join() {
	longest := g.options.retry
	if longest == 0 {
		longest = longestRetry
	}
	pause := min(firstRetry, longest)
	var strays backoff
	for round := 0; g.ctx.Err() == nil; round++ {
		there, _ := g.count()
		if there == 1 {
			g.joinAny(g.seeds())
		} else {
			g.joinDead(there)
			if strays.turn() {
				strays.settle(g.joinStray())
			}
			if slices.Contains(exchanges, round) {
				g.exchange()
			}
		}
		if round == 0 {
			close(g.firstTry)
		}
		select {
		case <-g.ctx.Done():
		case <-time.After(jitter(pause)):
		}
		pause = min(2*pause, longest)
	}
	if g.Err() != nil { // refused: Close may not be called for a while
		_ = g.shutdown()
	}
}

// exchanges are the rounds, some five and twenty seconds after the start, in which a member
// exchanges its whole state with another one. While many start at once, each sends news on only as
// often as suits the few members in its list so far, and some get lost. memberlist's own exchange
// would come minutes later.
var exchanges = []int{4, 6}

func (g *Gossip) exchange() {
	var there []string
	g.mu.Lock()
	for _, s := range g.mu.members {
		if !s.State.Gone() {
			there = append(there, s.address)
		}
	}
	g.mu.Unlock()
	if len(there) > 0 {
		g.joinAny([]string{there[rand.IntN(len(there))]})
	}
}

// joinDead tries one of the dead. All members together try each of them about once a round.
func (g *Gossip) joinDead(there int) {
	var dead []string
	g.mu.Lock()
	g.forget(time.Now())
	for _, s := range g.mu.members {
		if s.State == Dead {
			dead = append(dead, s.address)
		}
	}
	g.mu.Unlock()
	if len(dead) > 0 && rand.IntN(there) < len(dead) {
		g.joinAny([]string{dead[rand.IntN(len(dead))]})
	}
}

// joinStray checks one of the seeds and, if none of its addresses is a member's,
// joins there. It reports whether that was in vain.
func (g *Gossip) joinStray() (inVain bool) {
	seeds := g.seeds()
	if len(seeds) == 0 {
		return false
	}
	numbers := g.resolve(seeds[rand.IntN(len(seeds))])
	g.mu.Lock()
	for _, s := range g.mu.members {
		if slices.Contains(numbers, s.address) { // there, or looked for as a dead one
			numbers = nil
		}
	}
	g.mu.Unlock()
	if slices.Contains(numbers, g.address) { // ourselves, by name
		return false
	}
	return len(numbers) > 0 && g.joinAny(numbers) == 0
}

// backoff skips more and more turns as long as they are in vain. Many members may have a seed in
// common that is no more.
type backoff struct{ skip, left int }

func (b *backoff) turn() bool {
	b.left--
	return b.left < 0
}

func (b *backoff) settle(inVain bool) {
	b.skip = min(2*b.skip+1, maxSkip)
	if !inVain {
		b.skip = 0
	}
	b.left = b.skip
}

// joinAny exchanges members with a few of the addresses, in random order, and returns
// how many answered.
func (g *Gossip) joinAny(addresses []string) (answered int) {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	there, _ := g.count()
	g.joining.Store(there == 1)
	defer g.joining.Store(false)
	tried := 0
	var last error
	for _, a := range addresses {
		for _, number := range g.resolve(a) {
			if answered == enough || tried == maxAttempts || g.ctx.Err() != nil {
				break
			}
			tried++
			if n, err := g.list.Join([]string{number}); err != nil {
				last = err
			} else {
				answered += n
			}
		}
	}
	if answered == 0 && last != nil && g.ctx.Err() == nil {
		g.log.Debug("gossip: no member answers", "tried", tried, "error", last)
	}
	return answered
}

// resolve returns the numeric addresses of host:port.
func (g *Gossip) resolve(address string) []string {
	host, port, ok := splitAddress(address)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.ctx, 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		g.log.Debug("gossip: a name has no address", "name", host, "error", err)
		return nil
	}
	all := make([]string, len(ips))
	for i, ip := range ips {
		all[i] = joinAddress(ip.Unmap().String(), port)
	}
	return all
}
