package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"forebay/client"
)

const contextHelp = `A context is a name for how a cluster's daemon is reached: the values of --socket, --key-file, --token-file and
--tls-…. Which one is used, the first that is given:

    --socket   --context   $FOREBAY_SOCKET   $FOREBAY_CONTEXT   bbctl context use   the daemon of this machine

Commands of bbctl slurm take --socket, --context and $FOREBAY_SOCKET alone. Contexts are kept in $XDG_CONFIG_HOME/forebay/contexts.yaml (~/.config/forebay/contexts.yaml).`

// contexts is the file of contexts:
//
//	current: NAME
//	contexts:
//	  NAME: {socket: tcp://host:7481, token-file: /path, …}
type contexts struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]reached `yaml:"contexts"`
}

// reached is how a daemon is reached. Paths of files are absolute.
type reached struct {
	Socket  string `yaml:"socket" json:"socket"`
	KeyFile string `yaml:"key-file,omitempty" json:"key_file,omitempty"`
	Token   string `yaml:"token-file,omitempty" json:"token_file,omitempty"`
	CA      string `yaml:"tls-ca,omitempty" json:"tls_ca,omitempty"`
	Cert    string `yaml:"tls-cert,omitempty" json:"tls_cert,omitempty"`
	Key     string `yaml:"tls-key,omitempty" json:"tls_key,omitempty"`
}

// contextsFile is where contexts are kept.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", &client.Error{Kind: client.ErrInvalid, Op: "context", Err: err, Remedy: "set HOME or XDG_CONFIG_HOME"}
	}
	return filepath.Join(dir, "forebay", "contexts.yaml"), nil
}

// readContexts reads the file. A missing file has no contexts.
func readContexts() (contexts, error) {
	c := contexts{Contexts: map[string]reached{}}
	file, err := contextsFile()
	if err != nil {
		return c, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, &client.Error{Kind: client.ErrInvalid, Op: "context", Path: file, Err: err, Remedy: "correct the file, or remove it"}
	}
	if c.Contexts == nil { // the key is there, and has nothing
		c.Contexts = map[string]reached{}
	}
	return c, nil
}

// write replaces the file, in one step.
func (c *contexts) write() error {
	file, err := contextsFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".contexts-*") // readable by its owner alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// get returns a context.
func (c *contexts) get(name string) (reached, error) {
	r, ok := c.Contexts[name]
	if !ok {
		return r, &client.Error{Kind: client.ErrNotFound, Op: "context", Path: name, Err: errors.New("there is no such context"), Remedy: "see bbctl context list"}
	}
	return r, nil
}

// UseContext selects the daemon of a context, unless the command line or the environment names one.
// Commands that Slurm runs on a node are for the daemon there, and may have no home directory.
func (a *App) UseContext() error {
	asked := cmp.Or(a.Context, os.Getenv("FOREBAY_CONTEXT"))
	switch {
	case a.chosen, a.Address != "", a.Context == "" && os.Getenv("FOREBAY_SOCKET") != "":
		return nil
	case a.Context == "" && a.Slurm:
		return nil
	}
	if _, err := contextsFile(); err != nil && asked == "" {
		return nil
	}
	c, err := readContexts()
	if err != nil {
		return err
	}
	if asked = cmp.Or(asked, c.Current); asked == "" {
		return nil
	}
	r, err := c.get(asked)
	if err != nil {
		return err
	}
	a.Address, a.chosen = r.Socket, a.Context == ""
	a.KeyFile, a.Token = cmp.Or(a.KeyFile, r.KeyFile), cmp.Or(a.Token, r.Token)
	a.TLS.CA, a.TLS.Cert, a.TLS.Key = cmp.Or(a.TLS.CA, r.CA), cmp.Or(a.TLS.Cert, r.Cert), cmp.Or(a.TLS.Key, r.Key)
	return nil
}

func NewContextCommand(a *App) *cobra.Command {
	cmd := &cobra.Command{Use: "context", Short: "Name clusters, and choose one", Args: cobra.NoArgs, Long: contextHelp}
	cmd.AddCommand(newContextListCommand(a), newContextShowCommand(a), newContextAddCommand(a), newContextUseCommand(a), newContextRemoveCommand(a))
	return cmd
}

// contextJSON is how a context is printed with --json.
type contextJSON struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	reached
}

func newContextListCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List contexts; * is the one that is used", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := readContexts()
			if err != nil {
				return err
			}
			list := []contextJSON{}
			rows := [][]string{{"", "NAME", "SOCKET"}}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				mark := map[bool]string{true: "*"}[name == c.Current]
				list = append(list, contextJSON{name, name == c.Current, c.Contexts[name]})
				rows = append(rows, []string{mark, name, c.Contexts[name].Socket})
			}
			return a.Print(list, func() { a.Table(rows) })
		},
	}
}

func newContextShowCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "show [CONTEXT]", Short: "Show a context, or the one that is used", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := readContexts()
			if err != nil {
				return err
			}
			name := c.Current
			if len(args) > 0 {
				name = args[0]
			}
			r, err := c.get(name)
			if err != nil {
				return err
			}
			return a.Print(contextJSON{name, name == c.Current, r}, func() {
				a.Table([][]string{
					{"name", name},
					{"socket", r.Socket},
					{"key-file", r.KeyFile},
					{"token-file", r.Token},
					{"tls-ca", r.CA},
					{"tls-cert", r.Cert},
					{"tls-key", r.Key},
				})
			})
		},
	}
}

func newContextAddCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "add NAME --socket ADDRESS", Short: "Name the values of --socket, --key-file, --token-file and --tls-…", Args: cobra.ExactArgs(1),
		Long:    "Adds a context, or replaces one. The first one is used from then on.\n\n" + contextHelp,
		Example: "  bbctl context add hpc --socket tcp://login1:7481 --token-file ~/hpc.token --tls-ca ~/hpc-ca.pem",
		RunE: func(_ *cobra.Command, args []string) error {
			if a.Address == "" {
				return Usage("--socket names the daemon's address")
			}
			r := reached{a.SocketAddress(), a.KeyFile, a.Token, a.TLS.CA, a.TLS.Cert, a.TLS.Key}
			for _, file := range []*string{&r.KeyFile, &r.Token, &r.CA, &r.Cert, &r.Key} {
				if *file == "" {
					continue
				}
				full, err := filepath.Abs(*file)
				if err != nil {
					return err
				}
				*file = full
			}
			return changeContexts(func(c *contexts) error {
				c.Contexts[args[0]] = r
				c.Current = cmp.Or(c.Current, args[0])
				return a.Print(contextJSON{args[0], args[0] == c.Current, r}, func() { fmt.Fprintln(a.Out, "added", args[0]) })
			})
		},
	}
}

func newContextUseCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "use CONTEXT", Short: "Use a context from now on", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(c *contexts) error {
				r, err := c.get(args[0])
				if err != nil {
					return err
				}
				c.Current = args[0]
				return a.Print(contextJSON{args[0], true, r}, func() { fmt.Fprintln(a.Out, "using", args[0], "at", r.Socket) })
			})
		},
	}
}

func newContextRemoveCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "remove CONTEXT", Short: "Remove a context", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(c *contexts) error {
				if _, err := c.get(args[0]); err != nil {
					return err
				}
				delete(c.Contexts, args[0])
				if c.Current == args[0] {
					c.Current = ""
				}
				return a.Print(map[string]string{"removed": args[0]}, func() { fmt.Fprintln(a.Out, "removed", args[0]) })
			})
		},
	}
}

// changeContexts changes the file of contexts.
func changeContexts(change func(*contexts) error) error {
	c, err := readContexts()
	if err == nil {
		err = change(&c)
	}
	if err != nil {
		return err
	}
	return c.write()
}

// ContextNames are the names of contexts, for completion.
func ContextNames() []string {
	c, _ := readContexts()
	return slices.Sorted(maps.Keys(c.Contexts))
}
