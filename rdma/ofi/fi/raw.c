//go:build ofi && cgo

#include "raw.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define MESSAGE 64   // bytes of a message
#define DEPTH 64     // operations in flight, at most
#define WAIT_S 10    // for the other end to connect

struct raw {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *tx, *rx;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint8_t *mem; // size bytes, and two messages behind them
	uint64_t size, addr, key; // the peer's
	struct fi_context2 contexts[DEPTH], message;
};

struct memory { // the serving end's description of its own
	uint64_t addr, key;
};

static int64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define CLOSE(f) do { if (f) fi_close(&(f)->fid); } while (0)

void raw_close(struct raw *r)
{
	if (!r)
		return;
	CLOSE(r->ep);
	CLOSE(r->pep);
	CLOSE(r->mr);
	CLOSE(r->tx);
	CLOSE(r->rx);
	CLOSE(r->eq);
	CLOSE(r->domain);
	CLOSE(r->fabric);
	if (r->info)
		fi_freeinfo(r->info);
	if (r->mem)
		munmap(r->mem, r->size + 2 * MESSAGE);
	free(r);
}

void raw_free_string(char *s)
{
	free(s);
}

// choose returns the offer with this address on this machine, or the first; NULL if there is none.
static struct fi_info *choose(struct fi_info *list, const char *address)
{
	char has[64];

	for (struct fi_info *i = list; i; i = i->next) {
		fb_address(i, has, sizeof(has));
		if (!*address || !strcmp(has, address))
			return fi_dupinfo(i);
	}
	return NULL;
}

struct raw *raw_open(const char *provider, const char *address, uint64_t size, char *why, int len)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 2 * DEPTH};
	const char *call = "fi_getinfo";
	struct raw *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->size = size;
	struct fi_info *list = NULL;
	int ret = fb_getinfo(FI_EP_MSG, FI_DELIVERY_COMPLETE, provider, &list);
	if (ret)
		goto failed;
	r->info = choose(list, address);
	fi_freeinfo(list);
	ret = -FI_EADDRNOTAVAIL;
	if (!r->info)
		goto failed;
	call = "mmap";
	r->mem = mmap(NULL, size + 2 * MESSAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r->mem == MAP_FAILED) {
		r->mem = NULL;
		ret = -FI_ENOMEM;
		goto failed;
	}
	memset(r->mem, 0x5a, size); // pages of zeros would be one page of the kernel's
#define DO(name, x) do { call = name; ret = (x); if (ret) goto failed; } while (0)
	DO("fi_fabric", fi_fabric(r->info->fabric_attr, &r->fabric, NULL));
	DO("fi_domain", fi_domain(r->fabric, r->info, &r->domain, NULL));
	DO("fi_cq_open", fi_cq_open(r->domain, &cq, &r->tx, NULL));
	DO("fi_cq_open", fi_cq_open(r->domain, &cq, &r->rx, NULL));
	DO("fi_eq_open", fi_eq_open(r->fabric, &eq, &r->eq, NULL));
	DO("fi_mr_reg", fi_mr_reg(r->domain, r->mem, size + 2 * MESSAGE,
				  FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &r->mr, NULL));
#undef DO
	return r;
failed:
	snprintf(why, (size_t)len, "%s: %s", call, fi_strerror(-ret));
	raw_close(r);
	return NULL;
}

static int endpoint(struct raw *r, struct fi_info *info)
{
	int ret = fi_endpoint(r->domain, info, &r->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(r->ep, &r->eq->fid, 0);
	if (!ret)
		ret = fi_ep_bind(r->ep, &r->tx->fid, FI_TRANSMIT);
	if (!ret)
		ret = fi_ep_bind(r->ep, &r->rx->fid, FI_RECV);
	return ret ? ret : fi_enable(r->ep);
}

// event waits for an event of connection management. It polls, as all else here does.
static int event(struct raw *r, uint32_t want, struct fi_eq_cm_entry *e)
{
	int64_t until = nanoseconds() + (int64_t)WAIT_S * 1000000000;
	uint32_t got = 0;
	ssize_t n;

	while ((n = fi_eq_read(r->eq, &got, e, sizeof(*e), 0)) == -FI_EAGAIN) {
		if (nanoseconds() > until)
			return -FI_ETIMEDOUT;
		fi_cq_read(r->tx, NULL, 0);
		fi_cq_read(r->rx, NULL, 0);
		usleep(100);
	}
	if (n < 0)
		return (int)n;
	return got == want ? 0 : -FI_ECONNREFUSED;
}

// ended reports whether the peer has closed the connection.
static int ended(struct raw *r)
{
	uint32_t got = 0;
	struct fi_eq_cm_entry e;
	ssize_t n = fi_eq_read(r->eq, &got, &e, sizeof(e), 0);

	return n == -FI_EAVAIL || (n >= 0 && got == FI_SHUTDOWN);
}

// take takes a completion of either queue, and looks at both: progress of one may wait for the other.
static int take(struct raw *r, struct fid_cq *cq)
{
	struct fi_cq_entry e;
	struct fi_cq_err_entry err;
	struct fid_cq *other = cq == r->tx ? r->rx : r->tx;

	for (int64_t i = 1;; i++) {
		ssize_t n = fi_cq_read(cq, &e, 1);
		if (n == 1)
			return 0;
		if (n == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			fi_cq_readerr(cq, &err, 0);
			return err.err ? -err.err : -FI_EOTHER;
		}
		if (n != -FI_EAGAIN)
			return (int)n;
		fi_cq_read(other, NULL, 0);
		if (i % 64 == 0)
			sched_yield(); // the other end may wait for this processor
		if (i % 4096 == 0 && ended(r))
			return -FI_ECONNRESET;
	}
}

static int expect(struct raw *r)
{
	return (int)fi_recv(r->ep, r->mem + r->size + MESSAGE, MESSAGE, fi_mr_desc(r->mr), FI_ADDR_UNSPEC, &r->message);
}

static int send_message(struct raw *r)
{
	ssize_t ret;

	while ((ret = fi_send(r->ep, r->mem + r->size, MESSAGE, fi_mr_desc(r->mr), FI_ADDR_UNSPEC, &r->contexts[0])) == -FI_EAGAIN)
		fi_cq_read(r->tx, NULL, 0);
	return ret ? (int)ret : take(r, r->tx);
}

int raw_listen(struct raw *r, char *address, int len)
{
	uint8_t name[128];
	size_t n = sizeof(name);
	int ret = fi_passive_ep(r->fabric, r->info, &r->pep, NULL);

	if (!ret)
		ret = fi_pep_bind(r->pep, &r->eq->fid, 0);
	if (!ret)
		ret = fi_listen(r->pep);
	if (!ret)
		ret = fi_getname(&r->pep->fid, name, &n);
	if (!ret && (size_t)len <= 2 * n)
		ret = -FI_ETOOSMALL;
	for (size_t i = 0; !ret && i < n; i++)
		snprintf(address + 2 * i, 3, "%02x", name[i]);
	return ret;
}

int raw_serve(struct raw *r)
{
	struct fi_eq_cm_entry e;
	int ret = event(r, FI_CONNREQ, &e);

	if (ret)
		return ret;
	ret = endpoint(r, e.info);
	fi_freeinfo(e.info);
	if (!ret)
		ret = expect(r);
	if (!ret)
		ret = fi_accept(r->ep, NULL, 0);
	if (!ret)
		ret = event(r, FI_CONNECTED, &e);
	if (ret)
		return ret;
	struct memory m = {.key = fi_mr_key(r->mr)};
	if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		m.addr = (uint64_t)(uintptr_t)r->mem;
	memcpy(r->mem + r->size, &m, sizeof(m));
	for (;;) { // the peer sends first
		ret = take(r, r->rx);
		if (!ret)
			ret = expect(r);
		if (!ret)
			ret = send_message(r);
		if (ret)
			return ret == -FI_ECONNRESET || ret == -FI_ECANCELED || ended(r) ? 0 : ret;
	}
}

// echo sends a message and waits for the answer: earlier writes have arrived.
static int echo(struct raw *r)
{
	int ret = expect(r);

	if (!ret)
		ret = send_message(r);
	return ret ? ret : take(r, r->rx);
}

int raw_connect(struct raw *r, const char *address)
{
	size_t len = strlen(address) / 2;
	uint8_t *name = malloc(len + 1);
	struct fi_eq_cm_entry e;

	if (!name)
		return -FI_ENOMEM;
	for (size_t i = 0; i < len; i++)
		if (sscanf(address + 2 * i, "%2hhx", &name[i]) != 1) {
			free(name);
			return -FI_EINVAL;
		}
	free(r->info->dest_addr);
	r->info->dest_addr = name;
	r->info->dest_addrlen = len;
	int ret = endpoint(r, r->info);
	if (!ret)
		ret = fi_connect(r->ep, name, NULL, 0);
	if (!ret)
		ret = event(r, FI_CONNECTED, &e);
	if (!ret)
		ret = echo(r);
	if (ret)
		return ret;
	struct memory m;
	memcpy(&m, r->mem + r->size + MESSAGE, sizeof(m));
	r->addr = m.addr;
	r->key = m.key;
	return 0;
}

static ssize_t deliver(struct raw *r, uint64_t offset, uint64_t size, void *desc, void *context)
{
	struct iovec iov = {.iov_base = r->mem + offset, .iov_len = size};
	struct fi_rma_iov rma = {.addr = r->addr + offset, .len = size, .key = r->key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.rma_iov = &rma, .rma_iov_count = 1, .context = context,
	};
	return fi_writemsg(r->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

// post posts operation i, of those that take turns over the memory.
static int post(struct raw *r, int what, uint64_t size, int64_t i, int depth)
{
	uint64_t offset = (uint64_t)i * size % (r->size / size * size);
	void *desc = fi_mr_desc(r->mr), *context = &r->contexts[i % depth];
	ssize_t ret;

	for (;;) {
		if (what == RAW_WRITE)
			ret = fi_write(r->ep, r->mem + offset, size, desc, FI_ADDR_UNSPEC, r->addr + offset, r->key, context);
		else if (what == RAW_DELIVER)
			ret = deliver(r, offset, size, desc, context);
		else
			ret = fi_read(r->ep, r->mem + offset, size, desc, FI_ADDR_UNSPEC, r->addr + offset, r->key, context);
		if (ret != -FI_EAGAIN)
			return (int)ret;
		fi_cq_read(r->tx, NULL, 0);
	}
}

int64_t raw_run(struct raw *r, int what, uint64_t size, int depth, int64_t count)
{
	int64_t began = nanoseconds(), posted = 0;
	int ret = 0;

	if (size > r->size || depth < 1 || depth > DEPTH)
		return -FI_EINVAL;
	for (int64_t done = 0; done < count && !ret; done++) {
		while (posted < count && posted - done < depth && !ret)
			ret = post(r, what, size, posted++, depth);
		if (!ret)
			ret = take(r, r->tx);
	}
	if (!ret && what == RAW_WRITE)
		ret = echo(r);
	return ret ? ret : nanoseconds() - began;
}
