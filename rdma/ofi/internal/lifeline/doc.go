// Package lifeline is the TCP connection beside one on the fabric: its hello, its frames, and the threads
// that read and write them, which carry signs of life, requests for regions, and revocations. It must
// never depend on libfabric, nor on the purpose of a region.
package lifeline
