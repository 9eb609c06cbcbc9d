// Package client is the Go API of Forebay. Programs write files into a burst buffer
// at memory speed and read them back, as with os and io/fs:
//
//	c, err := client.Dial(ctx, client.Options{})
//	f, err := c.Buffer("ckpt").Create(ctx, "step-100")
//
// A [Client] talks to one daemon, over its unix socket or TCP. [File] says what
// survives what. Package admin creates, drains and destroys buffers. This package
// must never know what the daemon does with the bytes afterwards.
package client
