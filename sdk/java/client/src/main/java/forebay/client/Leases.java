package forebay.client;

import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Where the outputs of one buffer get segments from. An output fills a lease alone. The next one
 * continues in its rest, so that many small files share a segment. It may be used concurrently.
 */
final class Leases {
  private static final int MIN = 1 << 20;
  private static final int MAX = 32 << 20;

  /** The room below which a lease is returned rather than looked at again. */
  private static final int WORTH_KEEPING = 64 << 10;

  /** Leases up to so many bytes are kept for a while without writers. */
  private static final int KEEP_IDLE = 4 << 20;

  private static final long IDLE_MS = 1000;
  private static final int MAX_IDLE = 8;

  private final String buffer;
  private final RegionMap regionMap;
  private final ScheduledExecutorService timer;

  // Guarded by this.
  private final Deque<Lease> idle = new ArrayDeque<>();
  private int outputs;
  private long bursts; // counts the begins of writing after a pause
  private boolean closed;

  Leases(String buffer, RegionMap regionMap, ScheduledExecutorService timer) {
    this.buffer = buffer;
    this.regionMap = regionMap;
    this.timer = timer;
  }

  synchronized void enter() {
    outputs++;
    bursts++;
  }

  /**
   * Ends an output. The last one returns the rest of a burst, since a leased segment can be neither
   * evicted nor spilled, however full it is.
   */
  void leave() {
    long burst;
    synchronized (this) {
      if (--outputs > 0) {
        return;
      }
      burst = bursts;
    }
    letGo(KEEP_IDLE, burst);
    synchronized (this) {
      if (idle.isEmpty() || closed) {
        return;
      }
      timer.schedule(() -> letGo(0, burst), IDLE_MS, TimeUnit.MILLISECONDS);
    }
  }

  private void letGo(int keep, long burst) {
    List<Lease> gone = new ArrayList<>();
    synchronized (this) {
      if (outputs > 0 || bursts != burst) {
        return;
      }
      for (Iterator<Lease> i = idle.iterator(); i.hasNext(); ) {
        Lease l = i.next();
        if (l.length > keep) {
          i.remove();
          gone.add(l);
        }
      }
    }
    gone.forEach(Lease::release);
  }

  /**
   * Returns a lease of a session with room for need bytes at least, to an output that has written
   * so many and whose bytes belong in a tier, waiting for one if need be.
   */
  Lease take(Session s, int tier, int need, long written) throws IOException {
    List<Lease> useless = new ArrayList<>();
    Lease found = null;
    synchronized (this) {
      for (Iterator<Lease> i = idle.iterator(); i.hasNext() && found == null; ) {
        Lease l = i.next();
        if (l.session == s && l.tier == tier && l.room(true) >= need) {
          i.remove();
          found = l;
        } else if (!l.session.alive()) {
          i.remove();
          useless.add(l);
        }
      }
    }
    useless.forEach(Lease::release);
    return found != null ? found : ask(s, tier, need, written);
  }

  private Lease ask(Session s, int tier, int need, long written) throws IOException {
    // As much again as was written so far, so that leases grow with use.
    int size = MIN;
    while (size < MAX && (size < written || size < need + WORTH_KEEPING)) {
      size *= 2;
    }
    Forebay.LeaseRequest m =
        Forebay.LeaseRequest.newBuilder()
            .setBuffer(buffer)
            .setBytes(size)
            .setFits(need + 256L)
            .setTier(tier)
            .build();
    Session.Call c = s.start(Type.TYPE_LEASE, m, null, Forebay.Lease.parser());
    Forebay.Lease got;
    try {
      got = c.await(Forebay.Lease.class);
    } catch (InterruptedIOException e) {
      c.abandon(
          late -> {
            if (late.error() == null) {
              giveBack(s, ((Forebay.Lease) late.reply()).getId());
            }
          });
      throw e;
    }
    Forebay.Region r = got.getRegion();
    long limit = r.getLength() - got.getLength();
    if (got.getOffset() < 0
        || got.getLength() <= 0
        || got.getOffset() > limit
        || got.getDataStart() < 0
        || got.getDataStart() > got.getRecordFloor()
        || got.getRecordFloor() > got.getLength()) {
      throw new ForebayException(
          Kind.INTERNAL,
          "lease",
          buffer,
          "the daemon granted a segment that is not within its region");
    }
    Lease l;
    try {
      l = new Lease(s, got, tier, regionMap.acquire(r));
    } catch (IOException e) {
      giveBack(s, got.getId());
      throw e;
    }
    try {
      l.confirm();
    } catch (IOException e) {
      l.release();
      throw e;
    }
    if (l.room(true) < need) {
      l.release();
      throw new ForebayException(
          Kind.NO_SPACE,
          "lease",
          buffer,
          "the daemon grants only segments that are too small");
    }
    return l;
  }

  private static void giveBack(Session s, long id) {
    s.post(Type.TYPE_RETURN, Forebay.ReturnLease.newBuilder().setId(id).build(), null);
  }

  /** Takes a lease in which nothing waits back from an output. */
  void put(Lease l) {
    boolean keep;
    synchronized (this) {
      keep =
          !closed && l.session.alive() && l.room(true) >= WORTH_KEEPING && idle.size() < MAX_IDLE;
      if (keep) {
        idle.addFirst(l);
      }
    }
    if (!keep) {
      l.release();
    }
  }

  void close() {
    List<Lease> gone;
    synchronized (this) {
      closed = true;
      gone = new ArrayList<>(idle);
      idle.clear();
    }
    gone.forEach(Lease::release);
  }
}
