package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

// statJSON is how stat prints a file or directory with --json.
type statJSON struct {
	EntryJSON
	Xattrs []xattrJSON `json:"xattrs,omitempty"`
}

// xattrJSON is an extended attribute. A value that is no text is in Base64 alone. Without the right to read the file there
// is neither.
type xattrJSON struct {
	Name   string  `json:"name"`
	Value  *string `json:"value,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
	Stored bool    `json:"stored"` // the store has this value with the file
}

func newStatCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "stat bb://BUFFER/PATH…", Short: "Show everything about files and directories", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachMatch(cmd.Context(), "stat", args, func(at app.Found, _ bool) error {
				e, err := at.Stat(cmd.Context(), at.At.Path)
				if err != nil {
					return err
				}
				xattrs, err := xattrsOf(cmd.Context(), at.Buffer, at.At.Path)
				if err != nil {
					return err
				}
				return printStat(a, at.At, statJSON{DescribeEntry(&e), xattrs})
			})
		},
	}
}

// xattrsOf returns the extended attributes of a file or directory. Daemons of older releases have none.
func xattrsOf(ctx context.Context, b *client.Buffer, path string) (all []xattrJSON, err error) {
	xattrs, err := b.Xattrs(ctx, path)
	switch {
	case errors.Is(err, client.ErrUnsupported):
		return nil, nil
	case errors.Is(err, client.ErrPermission):
		names, err := b.XattrNames(ctx, path)
		for _, name := range names {
			all = append(all, xattrJSON{Name: bb.Printable(name)})
		}
		return all, err
	}
	for _, x := range xattrs {
		j := xattrJSON{Name: bb.Printable(x.Name), Stored: x.Stored}
		if text := string(x.Value); utf8.ValidString(text) {
			j.Value = &text
		} else {
			j.Base64 = x.Value
		}
		all = append(all, j)
	}
	return all, err
}

func printStat(a *app.App, at client.Address, j statJSON) error {
	return a.Print(j, func() {
		rows := [][]string{
			{"path", bb.Printable(at.String())},
			{"type", j.Type},
			{"target", bb.Printable(j.Target)},
			{"size", strconv.FormatInt(j.Size, 10)},
			{"state", strings.TrimSpace(j.State + " " + j.Reason)},
			{"mode", j.Mode},
			{"owner", fmt.Sprintf("%d:%d", j.UID, j.GID)},
			{"modified", j.MTime.Format(time.RFC3339Nano)},
			{"crc64nvme", j.Checksum},
			{"generation", strconv.FormatUint(j.Generation, 10)},
			{"etag", j.ETag},
		}
		if j.Layout != "" {
			rows = append(rows, []string{"layout", bb.Printable(j.Layout)})
		}
		for i := range j.Xattrs {
			rows = append(rows, []string{j.Xattrs[i].Name, j.Xattrs[i].text()})
		}
		a.Table(rows)
	})
}

// text is the value in a form for people.
func (x *xattrJSON) text() string {
	switch {
	case x.Value != nil:
		return bb.Printable(*x.Value)
	case x.Base64 != nil:
		return fmt.Sprintf("%q", x.Base64)
	}
	return "(not readable)"
}
