package files

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

// drawing draws directories, and adds up the drawn entries.
type drawing struct {
	a        *app.App
	depth    int // 0: any
	dirsOnly bool
	sizes    bool

	roots, dirs, files, bytes int64
}

// newTreeCommand prints a directory as a drawing.
func newTreeCommand(a *app.App) *cobra.Command {
	d := drawing{a: a}
	cmd := &cobra.Command{
		Use: "tree bb://BUFFER[/PATH]…", Short: "Draw a directory with everything below it", Args: cobra.MinimumNArgs(1),
		Example: "  bbctl tree -L 2 bb://ckpt\n  bbctl tree -s bb://ckpt/run1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.JSON {
				return app.Usage("a drawing is not JSON: use bbctl ls -r --json")
			}
			err := a.EachMatch(cmd.Context(), "tree", args, func(at app.Found, _ bool) error {
				e, err := at.Stat(cmd.Context(), at.At.Path)
				if err != nil {
					return err
				}
				d.roots++
				fmt.Fprintln(a.Out, bb.Printable(at.At.String())+d.size(&e))
				if e.IsDir() {
					return d.below(cmd.Context(), at.Buffer, e.Path, "", 1)
				}
				d.files, d.bytes = d.files+1, d.bytes+e.Size
				return nil
			})
			if d.roots == 0 {
				return err
			}
			fmt.Fprintf(a.Out, "\n%s, %s, %s\n", app.Count(d.dirs, "directory", "directories"), app.Count(d.files, "file", "files"), app.Size(d.bytes))
			return err
		},
	}
	cmd.Flags().IntVarP(&d.depth, "depth", "L", 0, "at most so many directories deep (default: all)")
	cmd.Flags().BoolVarP(&d.dirsOnly, "dirs", "d", false, "directories alone")
	cmd.Flags().BoolVarP(&d.sizes, "size", "s", false, "with sizes and states")
	return cmd
}

// below draws the entries of a directory. It holds one entry of each directory on the way.
func (d *drawing) below(ctx context.Context, b *client.Buffer, dir, indent string, level int) error {
	var last *client.Entry
	for e, err := range b.ReadDir(ctx, dir) {
		if err != nil {
			return err
		}
		if d.dirsOnly && !e.IsDir() {
			d.files, d.bytes = d.files+1, d.bytes+e.Size
			continue
		}
		if last != nil {
			if err := d.entry(ctx, b, last, indent, "├── ", "│   ", level); err != nil {
				return err
			}
		}
		last = &e
	}
	if last == nil {
		return nil
	}
	return d.entry(ctx, b, last, indent, "└── ", "    ", level)
}

// entry draws an entry and everything below it.
func (d *drawing) entry(ctx context.Context, b *client.Buffer, e *client.Entry, indent, branch, next string, level int) error {
	name := bb.Printable(e.Name)
	switch e.Type {
	case client.TypeDirectory:
		name += "/"
	case client.TypeSymlink:
		name += " -> " + bb.Printable(e.Target)
	}
	fmt.Fprintln(d.a.Out, indent+branch+name+d.size(e))
	if !e.IsDir() {
		d.files, d.bytes = d.files+1, d.bytes+e.Size
		return nil
	}
	d.dirs++
	if d.depth > 0 && level >= d.depth {
		return nil
	}
	err := d.below(ctx, b, e.Path, indent+next, level+1)
	if client.KindOf(err) == client.ErrNotFound {
		return nil // it went meanwhile
	}
	return err
}

// size is the text behind a file's name.
func (d *drawing) size(e *client.Entry) string {
	if !d.sizes || !e.IsFile() {
		return ""
	}
	return fmt.Sprintf("  (%s, %s)", app.Size(e.Size), e.State)
}
