package stores

import (
	"context"

	"forebay/cmd/bbbench/testbed"
	"forebay/flusher/backing/s3"
)

func objectName(prefix string, i int) string { return prefix + "/" + testbed.FileName(i) }

// removeObjects removes the objects of a round from the store.
func removeObjects(ctx context.Context, plain *s3.Plain, n int, prefixes ...string) error {
	for _, prefix := range prefixes {
		for i := range n {
			if err := plain.Remove(ctx, objectName(prefix, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
