package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
	"forebay/meta/gossip"
)

// clusterSecrets is a directory as `bbctl cluster init` makes it.
func clusterSecrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "../bbctl", "cluster", "init", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestSecretsStayInFiles starts a daemon with all kinds of secrets, connects clients with them and
// without, and searches for them in its log, its arguments and its environment.
func TestSecretsStayInFiles(t *testing.T) {
	dir := clusterSecrets(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	keys, err := clusterkey.Read(in("cluster.key"))
	if err != nil {
		t.Fatal(err)
	}
	address := bbdtest.FreePort(t, "127.0.0.1")
	d := bbdtest.New(t, "--memory", "128MiB", "--log-level", "debug", "--listen-tcp", address, "--key-file", in("cluster.key"),
		"--tls-ca", in("ca.pem"), "--tls-cert", in("daemon.pem"), "--tls-key", in("daemon.key"),
		"--cluster-listen", bbdtest.FreePort(t, "127.0.0.1"), "--cluster-advertise", "127.0.0.1")
	d.Env = []string{"FOREBAY_NATS_SERVERS=" + bbdtest.FreePort(t, "127.0.0.1")}
	d.Start()
	dial := func(o client.Options) error {
		o.Address = "tcp://" + address
		c, err := client.Dial(t.Context(), o)
		if err != nil {
			return err
		}
		_, err = admin.Nodes(t.Context(), c)
		c.Close()
		return err
	}
	for name, o := range map[string]client.Options{
		"key":         {CA: in("ca.pem"), KeyFile: in("cluster.key")},
		"certificate": {CA: in("ca.pem"), Cert: in("client.pem"), Key: in("client.key")},
	} {
		if err := dial(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(other, clusterkey.New(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]client.Options{
		"nothing": {CA: in("ca.pem")}, "no TLS": {KeyFile: in("cluster.key")}, "another key": {CA: in("ca.pem"), KeyFile: other},
	} {
		if err := dial(o); client.KindOf(err) != client.ErrPermission {
			t.Errorf("%s: %v", name, err)
		}
	}
	var seen strings.Builder
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.Pid(), file))
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(text)
	}
	d.Stop()
	seen.WriteString(d.Log())
	if !strings.Contains(seen.String(), "level=DEBUG") && !strings.Contains(seen.String(), "session ended") {
		t.Errorf("the daemon logged nothing of note: the test does not test\n%s", seen.String())
	}
	forbidden := map[string][]byte{"the key": keys[0]}
	raw, err := hex.DecodeString(string(keys[0]))
	if err != nil {
		t.Fatal(err)
	}
	forbidden["the key's bytes"] = raw
	if forbidden["gossip's key"], err = gossip.Key(keys[0]); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"daemon.key", "client.key"} {
		text, err := os.ReadFile(in(name))
		if err != nil {
			t.Fatal(err)
		}
		forbidden[name] = []byte(strings.Split(string(text), "\n")[1])
	}
	for name, secret := range forbidden {
		for _, form := range []string{
			string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)), fmt.Sprint(secret),
			base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret), fmt.Sprintf("%q", secret),
		} {
			if strings.Contains(seen.String(), form) {
				t.Errorf("%s stands in the log or the process list", name)
			}
		}
	}
}

// TestUnguardedIsRefused: no listener beyond loopback without a proof of the client's identity.
func TestUnguardedIsRefused(t *testing.T) {
	dir := t.TempDir()
	loose := filepath.Join(dir, "key")
	if err := os.WriteFile(loose, clusterkey.New(), 0o640); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"sessions":                          {[]string{"--listen-tcp", "0.0.0.0:0"}, "listen.tcp"},
		"fabric":                            {[]string{"--listen-tcp", "127.0.0.1:0", "--listen-fabric", "0.0.0.0:0"}, "listen.fabric"},
		"gossip":                            {[]string{"--listen-tcp", "127.0.0.1:0", "--cluster-listen", "0.0.0.0:0", "--nats-url", "nats://127.0.0.1:1"}, "cluster.listen"},
		"clients of the namespace's server": {[]string{"--nats-embedded-listen", "0.0.0.0:0"}, "nats.embedded.listen"},
		"namespace servers":                 {[]string{"--nats-servers", "0.0.0.0:41230"}, "nats.servers"},
		"a loose key":                       {[]string{"--listen-tcp", "127.0.0.1:0", "--key-file", loose}, "chmod 600"},
		"half of TLS":                       {[]string{"--listen-tcp", "127.0.0.1:0", "--tls-ca", "/nowhere/ca.pem"}, "go together"},
	} {
		t.Run(name, func(t *testing.T) {
			d := bbdtest.New(t, append([]string{"--memory", "64MiB"}, c.args...)...)
			if err := d.TryStart(); err == nil || !strings.Contains(d.Log(), c.says) {
				t.Errorf("%v\n%s", err, d.Log())
			}
		})
	}
}

// TestCertificatesReplaceTheKey: the files of cluster init are enough to listen.
func TestCertificatesReplaceTheKey(t *testing.T) {
	dir := clusterSecrets(t)
	address := bbdtest.FreePort(t, "127.0.0.1")
	bbdtest.Start(t, "--memory", "64MiB", "--listen-tcp", address,
		"--tls-ca", dir+"/ca.pem", "--tls-cert", dir+"/daemon.pem", "--tls-key", dir+"/daemon.key")
	c, err := client.Dial(t.Context(), client.Options{
		Address: "tcp://" + address, CA: dir + "/ca.pem", Cert: dir + "/client.pem", Key: dir + "/client.key",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := clustercert.Load(clustercert.Files{CA: dir + "/ca.pem", Cert: dir + "/daemon.pem", Key: dir + "/client.key"}); err == nil {
		t.Error("a certificate goes with another's key")
	}
}
