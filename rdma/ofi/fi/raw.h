// libfabric alone, in one loop that polls: the limit, against which benchmarks
// measure rdma/ofi. As fi_rma_bw and fi_pingpong of the fabtests do it.
#ifndef FOREBAY_OFI_RAW_H
#define FOREBAY_OFI_RAW_H

#include <stdint.h>

// RAW_DELIVER is a write that completes when it is in the target's memory, not when it is sent.
enum { RAW_WRITE, RAW_DELIVER, RAW_READ };

struct raw; // one end of a connection of message endpoints

// raw_open opens a provider at one of this machine's addresses ("": the first), and size bytes of
// registered memory; NULL, and the failed call.
struct raw *raw_open(const char *provider, const char *address, uint64_t size, char *why, int len);
void raw_close(struct raw *r);
void raw_free_string(char *s);

// All return 0, or a negative error of fi_errno.h.

// raw_listen writes where it listens, in hexadecimal.
int raw_listen(struct raw *r, char *address, int len);
// raw_serve takes one connection, gives it the memory, and answers until it ends.
int raw_serve(struct raw *r);
int raw_connect(struct raw *r, const char *address);
// raw_run does count operations of size bytes, depth in flight, and returns the nanoseconds until
// the last has arrived.
int64_t raw_run(struct raw *r, int what, uint64_t size, int depth, int64_t count);

#endif
