// Package lifeline is the TCP connection beside one on the fabric: its hello, its frames, and the threads
// that read and write them, by which each side learns that the other lives, asks for regions and revokes
// them. It must never know libfabric, nor what a region is for.
package lifeline
