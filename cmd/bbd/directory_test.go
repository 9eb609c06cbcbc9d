package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forebay/internal/nsstest"
)

// The rules for stores hold for users and groups that are not in /etc/passwd and /etc/group, and a
// rule with an unknown name applies to no user by it. The binary is static, as on nodes.
func TestRulesForUsersOfADirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	nsstest.Run(t, func(t *testing.T, s *nsstest.Source) {
		const carol, dave, erin = 50003, 50004, 50005
		s.Users(fmt.Sprintf("carol:x:%d:%[1]d::/:/bin/sh\ndave:x:%d:%[2]d::/:/bin/sh\nerin:x:%d:%[3]d::/:/bin/sh\n", carol, dave, erin))
		s.Groups("lab:x:50011:dave\n")
		t.Setenv("AWS_ACCESS_KEY_ID", "SITEKEY")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		store := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(store.Close)
		u := startForUsers(t, smallDaemon+fmt.Sprintf("stores: [{endpoints: [%q], users: [carol, \"@lab\", \"nobody-has-this\"]}]\n", store.URL))
		for uid, want := range map[int]string{carol: "not found", dave: "not found", erin: "permission"} {
			name := fmt.Sprint("of-", uid)
			out, err := u.as(uid, time.Minute, "buffer", "create", name, "--backing", "s3://bucket/x?path_style=true&region=us-east-1&endpoint="+store.URL)
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("uid %d: %v, want %q\n%s", uid, err, want, out)
			}
		}
		if log := u.d.Log(); strings.Count(log, "user=nobody-has-this") != 1 {
			t.Errorf("a name that nobody has is not in the log once:\n%s", log)
		}
	})
}
