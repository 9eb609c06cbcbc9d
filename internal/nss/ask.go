// Package nss queries the system's user database for the groups of a user, and for the numbers of users and
// groups. A static binary reads /etc/passwd and /etc/group alone, so the system's own programs are run, which
// read LDAP and every other source of nsswitch.conf(5). A constant bounds the wait for an answer. The package
// must never decide the rights of a user.
package nss

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"

	"forebay/internal/bb"
)

// Path is the search path for programs of the system, in any environment.
const Path = "/usr/sbin:/usr/bin:/sbin:/bin"

// endWithin is how long a program may hold its output open after it was killed.
const endWithin = time.Second

// ask returns the output of a program. found is false if there is no such program, or it has no
// answer. A late answer is an error.
func ask(ctx context.Context, program string, args ...string) (out string, found bool, err error) {
	for dir := range strings.SplitSeq(Path, ":") {
		cmd := exec.CommandContext(ctx, dir+"/"+program, args...)
		cmd.Env = []string{"PATH=" + Path, "LC_ALL=C"}
		cmd.WaitDelay = endWithin
		b, err := cmd.Output()
		if ctx.Err() != nil {
			return "", false, silent(program, args)
		}
		if exit := (*exec.ExitError)(nil); err == nil || errors.As(err, &exit) {
			return string(b), err == nil, nil
		}
	}
	return "", false, nil
}

func silent(program string, args []string) error {
	return bb.E(bb.Unavailable, "look up", strings.Join(args, " "), program+" does not answer").
		WithRemedy("check the system's user database")
}
