package client

import (
	"forebay/client/internal/reader"
	"forebay/client/internal/region"
	"forebay/client/internal/writer"
)

// Internals for tests.

func (f *File) Reader() *reader.Reader { return f.r }

func (f *File) Writer() *writer.Writer { return f.w }

func (c *Client) Regions() *region.Map { return &c.regions }
