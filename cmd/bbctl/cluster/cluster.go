package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
)

// The files of a cluster's secrets.
const (
	keyFile       = "cluster.key"
	authorityCert = "ca.pem"
	authorityKey  = "ca.key"
)

// leaves are the certificates that an authority signs, which renew makes again.
var leaves = []struct {
	role      clustercert.Role
	cert, key string
}{
	{clustercert.Daemon, "daemon.pem", "daemon.key"},
	{clustercert.Client, "client.pem", "client.key"},
}

type clusterFlags struct {
	hosts    []string
	lifetime time.Duration
	force    bool
}

func newClusterCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Make a cluster's key and certificates", Args: cobra.NoArgs}
	cmd.AddCommand(newClusterInitCommand(a), newClusterRenewCommand(a))
	return cmd
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.lifetime, "lifetime", clustercert.LeafLife, "how long the certificates of daemons and clients hold")
}

func newClusterInitCommand(a *app.App) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "init DIR", Short: "Make the cluster key, and certificates of an authority, daemons and clients", Args: cobra.ExactArgs(1),
		Long: `Writes into DIR, which nobody else may read: cluster.key, 32 random bytes; ca.pem and
ca.key, an authority for ten years; daemon.pem, daemon.key, client.pem and client.key,
which it has signed. It uses no daemon, and overwrites nothing without --force. Keep
ca.key where no daemon runs.`,
		Example: "  bbctl cluster init ~/forebay-secrets --hosts node1,node2,10.0.0.3",
		RunE: func(_ *cobra.Command, args []string) error {
			return clusterInit(a, args[0], f)
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.hosts, "hosts", []string{"localhost"}, "names and addresses to put into the daemons' certificate, for other programs; daemons and clients do not compare them")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite existing files: a running cluster uses the old key until its daemons have the new one")
	return cmd
}

func newClusterRenewCommand(a *app.App) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "renew DIR", Short: "Make the certificates of daemons and clients again, with the authority in DIR", Args: cobra.ExactArgs(1),
		Long: `Replaces daemon.pem, daemon.key, client.pem and client.key in DIR by new ones that the
authority there has signed. The key and the authority stay, so old and new certificates
get along with each other until the old ones expire.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return clusterRenew(a, args[0], f)
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.hosts, "hosts", nil, "names and addresses to put into the daemons' certificate (default: those in the old one)")
	return cmd
}

func clusterInit(a *app.App, dir string, f clusterFlags) error {
	const op = "cluster init"
	if err := checkHosts(f.hosts); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return bb.Wrap(op, dir, err)
	}
	now := time.Now()
	authority, pair, err := clustercert.NewAuthority(now)
	if err != nil {
		return bb.Wrap(op, dir, err)
	}
	files := []secretFile{
		{keyFile, append(clusterkey.New(), '\n'), 0o600}, {authorityCert, pair.Cert, 0o644}, {authorityKey, pair.Key, 0o600},
	}
	signed, err := sign(authority, f, now)
	if err != nil {
		return bb.Wrap(op, dir, err)
	}
	files = append(files, signed...)
	for _, file := range files {
		_, err := os.Lstat(filepath.Join(dir, file.name))
		switch {
		case err == nil && !f.force:
			return bb.E(bb.Exists, op, filepath.Join(dir, file.name), "it is there already").
				WithRemedy("use another directory; bbctl cluster renew makes new certificates; --force overwrites all")
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return bb.Wrap(op, dir, err)
		}
	}
	if err := writeSecrets(op, dir, files); err != nil {
		return err
	}
	return a.Print(clusterMade{dir, now.Add(f.lifetime), authority.Expires()}, func() {
		fmt.Fprintf(a.Out, clusterAdvice, filepath.Join(dir, ""), days(f.lifetime))
	})
}

// days is a lifetime for people.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.String()
	}
	return bb.Count(int64(d/(24*time.Hour)), "day")
}

// clusterMade is the output of init and renew with --json.
type clusterMade struct {
	Dir              string    `json:"dir"`
	Expires          time.Time `json:"expires"`
	AuthorityExpires time.Time `json:"authority_expires"`
}

const clusterAdvice = `made in %[1]s: a cluster key; an authority (10 years); certificates (%[2]s)

to every daemon's node, owned by its user, mode 600:
  cluster.key daemon.key daemon.pem ca.pem  →  /etc/forebay/
in its /etc/forebay/bbd.yaml:
  key_file: /etc/forebay/cluster.key
  tls: {ca: /etc/forebay/ca.pem, cert: /etc/forebay/daemon.pem, key: /etc/forebay/daemon.key}
to nodes whose users come over TCP: ca.pem client.pem client.key, and
  bbctl --tls-ca ca.pem --tls-cert client.pem --tls-key client.key --socket tcp://NODE:7481 …
keep %[1]s/ca.key where no daemon runs; before the certificates expire: bbctl cluster renew %[1]s
`

func clusterRenew(a *app.App, dir string, f clusterFlags) error {
	const op = "cluster renew"
	var pair clustercert.Pair
	var err error
	if pair.Cert, err = os.ReadFile(filepath.Join(dir, authorityCert)); err != nil {
		return bb.Wrap(op, dir, err)
	}
	if pair.Key, err = clusterkey.ReadSecret(filepath.Join(dir, authorityKey)); err != nil {
		return bb.Wrap(op, dir, err)
	}
	authority, err := clustercert.ReadAuthority(pair)
	if err != nil {
		return bb.Wrap(op, dir, err)
	}
	if len(f.hosts) == 0 {
		if old, err := os.ReadFile(filepath.Join(dir, leaves[0].cert)); err == nil {
			if f.hosts, err = clustercert.Hosts(old); err != nil {
				return bb.Wrap(op, leaves[0].cert, err)
			}
		}
	}
	if err := checkHosts(f.hosts); err != nil {
		return err
	}
	now := time.Now()
	files, err := sign(authority, f, now)
	if err != nil {
		return bb.Wrap(op, dir, err)
	}
	if err := writeSecrets(op, dir, files); err != nil {
		return err
	}
	return a.Print(clusterMade{dir, now.Add(f.lifetime), authority.Expires()}, func() {
		fmt.Fprintf(a.Out, "made in %s: certificates of daemons and clients (%s)\n"+
			"copy daemon.pem and daemon.key to every daemon's node and send it SIGHUP; client.pem and client.key to clients\n", dir, days(f.lifetime))
	})
}

// checkHosts refuses text that cannot be a name or an address.
func checkHosts(hosts []string) error {
	for _, h := range hosts {
		if net.ParseIP(h) == nil && (h == "" || strings.ContainsAny(h, " :/[]\t")) {
			return &client.Error{
				Kind: client.ErrInvalid, Op: "--hosts", Path: fmt.Sprintf("%q", h), Err: errors.New("is neither a name nor an address"),
				Remedy: "separate them by commas, without ports",
			}
		}
	}
	return nil
}

func sign(authority *clustercert.Authority, f clusterFlags, now time.Time) (files []secretFile, err error) {
	for _, l := range leaves {
		hosts := f.hosts
		if l.role != clustercert.Daemon {
			hosts = nil
		}
		pair, err := authority.Issue(l.role, hosts, now, f.lifetime)
		if err != nil {
			return nil, err
		}
		files = append(files, secretFile{l.cert, pair.Cert, 0o644}, secretFile{l.key, pair.Key, 0o600})
	}
	return files, nil
}

type secretFile struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// writeSecrets writes each file beside the old one and then in its place, so that none
// is ever there in part, or readable by others for a moment.
func writeSecrets(op, dir string, files []secretFile) error {
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := writeSecret(path, f); err != nil {
			return bb.Wrap(op, path, err)
		}
	}
	return nil
}

func writeSecret(path string, f secretFile) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), f.name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails once it has its name
	_, err = temporary.Write(f.content)
	if err == nil {
		err = temporary.Chmod(f.mode)
	}
	if err == nil {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
