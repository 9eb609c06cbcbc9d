// Package lifeline is the TCP connection beside one on the fabric: its hello, its frames, and the threads
// that read and write them, by which each side learns that the other lives, requests regions and revokes
// them. It must never know libfabric, nor the purpose of a region.
package lifeline
