package forebay.hadoop;

import forebay.client.ForebayException;
import forebay.client.Kind;
import forebay.client.Txn;
import java.io.Closeable;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.util.Progressable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Periodic work of committers in the background, by two threads a process. */
final class Background {
  private static final Logger LOG = LoggerFactory.getLogger(Background.class);
  private static final long PROGRESS_MS = 1000;
  private static final ScheduledThreadPoolExecutor TIMER = timer();

  private Background() {}

  private static ScheduledThreadPoolExecutor timer() {
    ScheduledThreadPoolExecutor t =
        new ScheduledThreadPoolExecutor(
            2,
            r -> {
              Thread thread = new Thread(r, "forebay-committer");
              thread.setDaemon(true);
              return thread;
            });
    t.setKeepAliveTime(5, TimeUnit.SECONDS);
    t.allowCoreThreadTimeOut(true);
    t.setRemoveOnCancelPolicy(true);
    return t;
  }

  /** Ends the work in the background. */
  interface Job extends Closeable {
    @Override
    void close();
  }

  /**
   * Renews a transaction's lease until it is over, or the job is closed, or nothing refers to the
   * owner any more. Then nothing is left that could commit it.
   */
  static Job renew(Txn txn, Duration lease, Object owner) {
    Renewal r = new Renewal(txn, new WeakReference<>(owner));
    long every = Math.max(1, lease.toMillis() / 3);
    r.future = TIMER.scheduleWithFixedDelay(r, every, every, TimeUnit.MILLISECONDS);
    return r;
  }

  private static final class Renewal implements Runnable, Job {
    private final Txn txn;
    private final WeakReference<Object> owner;
    private volatile ScheduledFuture<?> future;
    private volatile boolean closed;

    Renewal(Txn txn, WeakReference<Object> owner) {
      this.txn = txn;
      this.owner = owner;
    }

    @Override
    public void run() {
      if (closed || owner.get() == null) {
        close();
        return;
      }
      try {
        Txn.State state = txn.renew().state();
        if (state != Txn.State.OPEN && state != Txn.State.COMMITTING) {
          close();
        }
      } catch (IOException e) {
        LOG.warn("transaction {}: its lease was not renewed", txn.id(), e);
        Kind kind = ForebayException.kindOf(e);
        if (kind == Kind.CANCELLED || kind == Kind.NOT_FOUND || kind == Kind.INVALID) {
          close(); // it was aborted, or dropped, or the client is closed
        }
      }
    }

    @Override
    public void close() {
      closed = true;
      ScheduledFuture<?> f = future;
      if (f != null) {
        f.cancel(false);
      }
    }
  }

  /** Says every second that a job or task makes progress, until it is closed. */
  static Job progress(JobContext c) {
    if (!(c instanceof Progressable p)) {
      return () -> {};
    }
    ScheduledFuture<?> f =
        TIMER.scheduleWithFixedDelay(p::progress, 0, PROGRESS_MS, TimeUnit.MILLISECONDS);
    return () -> f.cancel(false);
  }
}
