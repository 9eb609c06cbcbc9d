// The part of libfabric that rdma/ofi needs, in few calls: libfabric's own are inline functions over
// tables, and a call from Go costs more than most of them.
#ifndef FOREBAY_OFI_SHIM_H
#define FOREBAY_OFI_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

// The interface that is asked for; later libraries keep it.
#define FB_VERSION FI_VERSION(1, 17)

// fb_device is an opened domain with its queues.
struct fb_device {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_eq *eq;
	struct fid_pep *pep; // listens for message endpoints; NULL before
	int cq_fd, eq_fd, wake_fd;
	size_t cq_size;
	uint64_t write_flags; // FI_DELIVERY_COMPLETE, or 0
};

// fb_context is one operation under way. libfabric owns fi meanwhile.
struct fb_context {
	struct fi_context2 fi;
	uint64_t tag;
};

// fb_endpoint is one end of a connection.
struct fb_endpoint {
	struct fid_ep *ep;
	struct fid_av *av; // of datagram endpoints
	fi_addr_t peer;
	size_t inject;
};

// fb_piece is a one-sided operation. Pointers are numbers, so that Go may hold them.
struct fb_piece {
	uintptr_t context, local, desc;
	uint64_t len, addr, key;
	int32_t write;
	int32_t inject; // of a write: libfabric copies it, from memory that need not be registered
};

// fb_posted is how many pieces were taken, and why not the next.
struct fb_posted {
	int32_t n, err;
};

// fb_done is one completion: of the context with this tag.
struct fb_done {
	uint64_t tag;
	int32_t err, prov;
};

enum { FB_NONE, FB_REQUEST, FB_CONNECTED, FB_SHUTDOWN, FB_FAILED };

#define FB_DATA 64

// fb_event is one event of connection management.
struct fb_event {
	int32_t kind, err, prov;
	uint32_t len;
	uintptr_t fid; // the endpoint
	struct fi_info *info; // of a request; the receiver's
	uint8_t data[FB_DATA];
};

// fb_nic is libfabric's description of the hardware.
struct fb_nic {
	char device[128];
	uint64_t speed;
	int32_t up;
};

// All return 0 or a number of things done, or a negative error of fi_errno.h.
int fb_getinfo(int endpoint, uint64_t write_flags, const char *provider, struct fi_info **out);
int fb_open(struct fb_device *d, const char **what);
void fb_close(struct fb_device *d);

struct fb_context *fb_contexts(uint32_t conn, uint32_t n);
int fb_address(const struct fi_info *info, char *buf, size_t len);
void fb_nic(const struct fi_info *info, struct fb_nic *nic);

int fb_register(struct fb_device *d, uintptr_t mem, size_t len, uint64_t access, uint64_t key, struct fid_mr **out);

int fb_listen(struct fb_device *d);
int fb_name(struct fid *f, void *buf, size_t *len);
void fb_reject(struct fb_device *d, struct fi_info *info);

int fb_endpoint_open(struct fb_device *d, struct fi_info *info, struct fb_endpoint *e);
int fb_endpoint_to(struct fb_device *d, const void *addr, size_t len, struct fb_endpoint *e);
int fb_endpoint_close(struct fb_endpoint *e);
int fb_connect(struct fb_endpoint *e, const void *addr, const void *param, size_t len);
int fb_accept(struct fb_endpoint *e);
int fb_insert(struct fb_endpoint *e, const void *addr);

struct fb_posted fb_post(struct fb_device *d, struct fb_endpoint *e, struct fb_piece *p, int n);

int fb_read(struct fb_device *d, struct fb_done *done, int max);
int fb_read_event(struct fb_device *d, struct fb_event *e);
int fb_sleep(struct fb_device *d, int timeout_ms);
void fb_wake(int fd);

#endif
