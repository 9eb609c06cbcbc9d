// Package client is the Go API of Forebay. Programs write files into a burst buffer
// at memory speed and read them back, as with os and io/fs:
//
//	c, err := client.Dial(ctx, client.Options{})
//	f, err := c.Buffer("ckpt").Create(ctx, "step-100")
//
// A [Client] is connected to one daemon, over its unix socket or TCP. The documentation of [File]
// lists the failures that bytes survive. Package admin creates, drains and destroys buffers. This
// package must never depend on how the daemon handles the bytes afterwards.
package client
