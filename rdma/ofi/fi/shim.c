//go:build ofi && cgo

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// libfabric's cache of registrations keeps memory registered that was closed, and finds out by hooks
// in libc that it was unmapped. The Go runtime maps and unmaps without libc: other memory at the
// same address would be reached by way of the pages of the old one (seen over verbs: messages
// that arrived, in memory that was gone). So there must be none, in any environment;
// memory registered here stays registered for long anyway (fi_mr(3), Memory Registration Cache).
static void no_cache(void)
{
	setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
	setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

int fb_getinfo(int endpoint, uint64_t write_flags, const char *provider, struct fi_info **out)
{
	pthread_once(&once, no_cache); // before libfabric reads its environment
	struct fi_info *hints = fi_allocinfo();
	if (!hints)
		return -FI_ENOMEM;
	hints->caps = FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = endpoint;
	hints->tx_attr->op_flags = write_flags;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	int ret = fi_getinfo(FB_VERSION, NULL, NULL, 0, hints, out);
	fi_freeinfo(hints);
	for (struct fi_info *i = ret ? NULL : *out; i; i = i->next)
		i->tx_attr->op_flags = 0; // asked for, but not for every operation
	return ret;
}

// fb_address writes this machine's address, "" where it is none of the Internet's.
int fb_address(const struct fi_info *info, char *buf, size_t len)
{
	const void *ip = NULL;
	int family = AF_INET;

	*buf = 0;
	if (!info->src_addr)
		return 0;
	// FI_SOCKADDR means that the address itself has its family.
	const struct sockaddr *sa = info->src_addr;
	if (info->addr_format == FI_SOCKADDR_IN || (info->addr_format == FI_SOCKADDR && sa->sa_family == AF_INET)) {
		ip = &((const struct sockaddr_in *)sa)->sin_addr;
	} else if (info->addr_format == FI_SOCKADDR_IN6 || (info->addr_format == FI_SOCKADDR && sa->sa_family == AF_INET6)) {
		ip = &((const struct sockaddr_in6 *)sa)->sin6_addr;
		family = AF_INET6;
	}
	if (ip && !inet_ntop(family, ip, buf, len))
		*buf = 0;
	return 0;
}

void fb_nic(const struct fi_info *info, struct fb_nic *nic)
{
	memset(nic, 0, sizeof(*nic));
	nic->up = 1;
	if (!info->nic)
		return;
	const struct fi_device_attr *d = info->nic->device_attr;
	if (d)
		snprintf(nic->device, sizeof(nic->device), "%s %s %s", d->name ? d->name : "",
			 d->driver ? d->driver : "", d->firmware ? d->firmware : "");
	const struct fi_link_attr *l = info->nic->link_attr;
	if (l) {
		nic->speed = l->speed;
		nic->up = l->state != FI_LINK_DOWN;
	}
}

// fb_contexts returns n contexts whose tags are the connection's number and their own.
struct fb_context *fb_contexts(uint32_t conn, uint32_t n)
{
	struct fb_context *c = calloc(n, sizeof(*c));
	for (uint32_t i = 0; c && i < n; i++)
		c[i].tag = (uint64_t)conn << 32 | i;
	return c;
}

static int wait_fd(struct fid *f, int *fd)
{
	return fi_control(f, FI_GETWAIT, fd);
}

// fb_open opens the device of d->info; d is zero otherwise. *what is the failed step.
int fb_open(struct fb_device *d, const char **what)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
	int ret;

	d->cq_fd = d->eq_fd = -1;
	*what = "eventfd";
	d->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (d->wake_fd < 0)
		return -errno;
	*what = "fi_fabric";
	if ((ret = fi_fabric(d->info->fabric_attr, &d->fabric, NULL)))
		return ret;
	*what = "fi_domain";
	if ((ret = fi_domain(d->fabric, d->info, &d->domain, NULL)))
		return ret;
	// Room for operations of many connections; hardware may have less.
	*what = "fi_cq_open";
	for (cq.size = 32768;; cq.size /= 2) {
		ret = fi_cq_open(d->domain, &cq, &d->cq, NULL);
		if (!ret || cq.size <= 256)
			break;
	}
	if (ret)
		return ret;
	d->cq_size = cq.size;
	*what = "wait object";
	if ((ret = wait_fd(&d->cq->fid, &d->cq_fd)))
		return ret;
	if (d->info->ep_attr->type != FI_EP_MSG)
		return 0; // datagram endpoints have no events
	*what = "fi_eq_open";
	if ((ret = fi_eq_open(d->fabric, &eq, &d->eq, NULL)))
		return ret;
	return wait_fd(&d->eq->fid, &d->eq_fd);
}

#define CLOSE(f) do { if (f) { fi_close(&(f)->fid); (f) = NULL; } } while (0)

// fb_close closes the objects of fb_open and fb_listen, in the only order that libfabric allows.
void fb_close(struct fb_device *d)
{
	CLOSE(d->pep);
	CLOSE(d->cq);
	CLOSE(d->eq);
	CLOSE(d->domain);
	CLOSE(d->fabric);
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	d->wake_fd = -1;
	if (d->info)
		fi_freeinfo(d->info);
	d->info = NULL;
}

int fb_register(struct fb_device *d, uintptr_t mem, size_t len, uint64_t access, uint64_t key, struct fid_mr **out)
{
	return fi_mr_reg(d->domain, (void *)mem, len, access, 0, key, 0, out, NULL);
}

int fb_listen(struct fb_device *d)
{
	int ret = fi_passive_ep(d->fabric, d->info, &d->pep, NULL);
	if (!ret)
		ret = fi_pep_bind(d->pep, &d->eq->fid, 0);
	if (!ret)
		ret = fi_listen(d->pep);
	if (ret)
		CLOSE(d->pep);
	return ret;
}

int fb_name(struct fid *f, void *buf, size_t *len)
{
	return fi_getname(f, buf, len);
}

void fb_reject(struct fb_device *d, struct fi_info *info)
{
	if (d->pep)
		fi_reject(d->pep, info->handle, NULL, 0);
	fi_freeinfo(info);
}

int fb_endpoint_open(struct fb_device *d, struct fi_info *info, struct fb_endpoint *e)
{
	memset(e, 0, sizeof(*e));
	e->inject = info->tx_attr->inject_size;
	int ret = fi_endpoint(d->domain, info, &e->ep, NULL);
	if (ret)
		return ret;
	if (info->ep_attr->type == FI_EP_MSG) {
		ret = fi_ep_bind(e->ep, &d->eq->fid, 0);
	} else {
		struct fi_av_attr attr = {.type = FI_AV_TABLE, .count = 1};
		ret = fi_av_open(d->domain, &attr, &e->av, NULL);
		if (!ret)
			ret = fi_ep_bind(e->ep, &e->av->fid, 0);
	}
	if (!ret)
		ret = fi_ep_bind(e->ep, &d->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!ret)
		ret = fi_enable(e->ep);
	return ret;
}

// fb_endpoint_to opens a message endpoint that is going to connect to addr.
int fb_endpoint_to(struct fb_device *d, const void *addr, size_t len, struct fb_endpoint *e)
{
	struct fi_info *info = fi_dupinfo(d->info);
	if (!info)
		return -FI_ENOMEM;
	free(info->dest_addr);
	info->dest_addr = malloc(len);
	if (!info->dest_addr) {
		fi_freeinfo(info);
		return -FI_ENOMEM;
	}
	memcpy(info->dest_addr, addr, len);
	info->dest_addrlen = len;
	int ret = fb_endpoint_open(d, info, e);
	fi_freeinfo(info);
	return ret;
}

// When it returns, nothing of the endpoint touches memory, and it writes no further completion. It
// is for endpoints that could not be opened altogether, too.
int fb_endpoint_close(struct fb_endpoint *e)
{
	int ret = 0;
	if (e->ep)
		ret = fi_close(&e->ep->fid);
	e->ep = NULL;
	CLOSE(e->av);
	return ret;
}

int fb_connect(struct fb_endpoint *e, const void *addr, const void *param, size_t len)
{
	return fi_connect(e->ep, addr, param, len);
}

int fb_accept(struct fb_endpoint *e)
{
	return fi_accept(e->ep, NULL, 0);
}

int fb_insert(struct fb_endpoint *e, const void *addr)
{
	int ret = fi_av_insert(e->av, addr, 1, &e->peer, 0, NULL);
	return ret == 1 ? 0 : ret < 0 ? ret : -FI_EINVAL;
}

// fb_post posts pieces in order.
struct fb_posted fb_post(struct fb_device *d, struct fb_endpoint *e, struct fb_piece *p, int n)
{
	for (int i = 0; i < n; i++, p++) {
		struct iovec iov = {.iov_base = (void *)p->local, .iov_len = p->len};
		struct fi_rma_iov rma = {.addr = p->addr, .len = p->len, .key = p->key};
		void *desc = (void *)p->desc;
		struct fi_msg_rma msg = {
			// Copied memory has no descriptor; verbs looks into one that is NULL.
			.msg_iov = &iov, .desc = p->inject ? NULL : &desc, .iov_count = 1, .addr = e->peer,
			.rma_iov = &rma, .rma_iov_count = 1, .context = (void *)p->context,
		};
		uint64_t flags = FI_COMPLETION | (p->inject ? FI_INJECT : 0);
		ssize_t ret = p->write ? fi_writemsg(e->ep, &msg, flags | d->write_flags) : fi_readmsg(e->ep, &msg, flags);
		if (ret)
			return (struct fb_posted){.n = i, .err = (int)ret};
	}
	return (struct fb_posted){.n = n};
}

static uint64_t tag_of(void *context)
{
	return context ? ((struct fb_context *)context)->tag : 0;
}

#define BATCH 64

static int report(const struct fi_cq_entry *entries, ssize_t n, struct fb_done *done)
{
	for (ssize_t i = 0; i < n; i++)
		done[i] = (struct fb_done){.tag = tag_of(entries[i].op_context)};
	return (int)n;
}

// fb_read takes the present completions.
int fb_read(struct fb_device *d, struct fb_done *done, int max)
{
	struct fi_cq_entry entries[BATCH];
	ssize_t n = fi_cq_read(d->cq, entries, max < BATCH ? max : BATCH);

	if (n > 0)
		return report(entries, n, done);
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry e;
		memset(&e, 0, sizeof(e));
		n = fi_cq_readerr(d->cq, &e, 0);
		if (n > 0) {
			*done = (struct fb_done){
				.tag = tag_of(e.op_context),
				.err = e.err ? e.err : FI_EOTHER, .prov = e.prov_errno,
			};
			return 1;
		}
	}
	return n < 0 && n != -FI_EAGAIN && n != -FI_EINTR ? (int)n : 0;
}

int fb_read_event(struct fb_device *d, struct fb_event *e)
{
	union {
		struct fi_eq_cm_entry cm;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} u;
	uint32_t event = 0;

	memset(e, 0, sizeof(*e));
	if (!d->eq)
		return 0;
	ssize_t n = fi_eq_read(d->eq, &event, &u, sizeof(u), 0);
	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry err;
		memset(&err, 0, sizeof(err));
		n = fi_eq_readerr(d->eq, &err, 0);
		if (n <= 0)
			return 0;
		e->kind = FB_FAILED;
		e->fid = (uintptr_t)err.fid;
		e->err = err.err;
		e->prov = err.prov_errno;
		return 1;
	}
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		return 0;
	if (n < 0)
		return (int)n;
	e->fid = (uintptr_t)u.cm.fid;
	switch (event) {
	case FI_CONNREQ:
		e->kind = FB_REQUEST;
		e->info = u.cm.info;
		break;
	case FI_CONNECTED:
		e->kind = FB_CONNECTED;
		break;
	case FI_SHUTDOWN:
		e->kind = FB_SHUTDOWN;
		break;
	default:
		return 1;
	}
	size_t len = (size_t)n > sizeof(u.cm) ? (size_t)n - sizeof(u.cm) : 0;
	e->len = len < FB_DATA ? len : FB_DATA;
	memcpy(e->data, u.cm.data, e->len);
	return 1;
}

// fb_sleep waits until there is something to do, or somebody calls fb_wake. libfabric requires that
// fi_trywait allow it first: earlier events are not signalled again.
int fb_sleep(struct fb_device *d, int timeout_ms)
{
	struct fid *fids[2] = {&d->cq->fid, d->eq ? &d->eq->fid : NULL};
	struct pollfd fds[3] = {
		{.fd = d->wake_fd, .events = POLLIN},
		{.fd = d->cq_fd, .events = POLLIN},
		{.fd = d->eq_fd, .events = POLLIN},
	};
	int n = d->eq ? 2 : 1;
	int ret = fi_trywait(d->fabric, fids, n);
	if (ret)
		return ret == -FI_EAGAIN ? 0 : ret;
	if (poll(fds, (nfds_t)n + 1, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents) {
		uint64_t count;
		ssize_t n = read(d->wake_fd, &count, sizeof(count));
		(void)n; // somebody else may have read it: it is a level
	}
	return 0;
}

void fb_wake(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));
	(void)n; // fails only when the counter is full, and then it is set
}
