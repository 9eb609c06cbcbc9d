package forebay.client;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * One connection to a daemon, with many requests in flight. A thread of its own reads the replies,
 * so that a caller may be interrupted without harm to the others.
 *
 * <p>A session that broke stays broken. Everything that the daemon granted in it (handles, leases,
 * pins) is void then.
 */
final class Session {
  /** Part of the daemon's bound that is reserved for cleanup: cancellations, unpinning. */
  private static final int SPARE = 64;

  final Forebay.Welcome welcome;
  final String address;
  final boolean maps;

  private final Transport transport;
  private final Frames.Reader in;
  private final Frames.Writer out;
  private final ReentrantLock writing = new ReentrantLock();
  private final Semaphore slots;
  private final AtomicLong handles = new AtomicLong();
  private final AtomicLong ids;
  private final Thread reader;

  private final Object lock = new Object(); // guards calls and reason
  private final Map<Long, Call> calls = new HashMap<>();
  private Throwable reason;
  private volatile boolean broken;

  /** Takes over a connection on which the handshake is done. lastId is the last request's. */
  Session(
      Transport transport,
      Frames.Reader in,
      Frames.Writer out,
      long lastId,
      Forebay.Welcome welcome,
      String address) {
    this.transport = transport;
    this.in = in;
    this.out = out;
    this.welcome = welcome;
    this.address = address;
    this.maps = welcome.getMapRegions();
    ids = new AtomicLong(lastId);
    slots = new Semaphore(Math.max(1, welcome.getMaxInFlight() - SPARE));
    reader = new Thread(this::readAll, "forebay-session");
    reader.setDaemon(true);
    reader.start();
  }

  /** One request in flight. Its fields may be read when it is done. */
  final class Call {
    final long id = ids.incrementAndGet();
    private final Type type;
    private final Parser<? extends MessageLite> parser;
    private final Consumer<MessageLite> each; // of replies that others follow; null: there are none
    private boolean counted;
    private boolean done;
    private Consumer<Call> late; // gets the outcome of an abandoned call
    private MessageLite reply;
    private byte[] data;
    private IOException error;

    private Call(
        Type type, Parser<? extends MessageLite> parser, Consumer<MessageLite> each) {
      this.type = type;
      this.parser = parser;
      this.each = each;
    }

    /** Waits for the reply. Interrupted, the call is still in flight ({@link #abandon}). */
    <T> T await(Class<T> type) throws IOException {
      synchronized (this) {
        try {
          while (!done) {
            wait();
          }
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          throw new InterruptedIOException("interrupted while waiting for the daemon");
        }
      }
      if (error instanceof ForebayException e) {
        throw e.here();
      }
      if (error != null) {
        throw error;
      }
      return type.cast(reply);
    }

    synchronized boolean isDone() {
      return done;
    }

    IOException error() {
      return error;
    }

    MessageLite reply() {
      return reply;
    }

    byte[] data() {
      return data;
    }

    /**
     * Abandons the call. The request is cancelled, and last gets the outcome from the thread that
     * receives it. It must not wait.
     */
    void abandon(Consumer<Call> last) {
      synchronized (this) {
        if (!done) {
          late = last;
        }
      }
      if (!isDone()) {
        post(Type.TYPE_CANCEL, Forebay.Cancel.newBuilder().setRequest(id).build(), null);
      } else if (last != null) {
        last.accept(this);
      }
    }

    private void finish(MessageLite m, byte[] d, IOException e) {
      Consumer<Call> told;
      synchronized (this) {
        if (done) {
          return;
        }
        reply = m;
        data = d;
        error = e;
        done = true;
        told = late;
        notifyAll();
      }
      if (counted) {
        slots.release();
      }
      if (told != null) {
        told.accept(this);
      }
    }
  }

  long nextHandle() {
    return handles.incrementAndGet();
  }

  /** Reports whether the daemon's grants of this session are still ours. */
  boolean alive() {
    return !broken;
  }

  /** Sends a request and waits for its reply. Interrupted, it cancels the request. */
  <T extends MessageLite> T ask(Type type, MessageLite m, Parser<T> parser, Class<T> reply)
      throws IOException {
    Call c = start(type, m, null, parser);
    try {
      return c.await(reply);
    } catch (InterruptedIOException e) {
      c.abandon(null);
      throw e;
    }
  }

  /** Sends a request, when there are few enough in flight. */
  Call start(Type type, MessageLite m, ByteBuffer data, Parser<? extends MessageLite> parser)
      throws IOException {
    return start(type, m, data, parser, null);
  }

  /** Sends a request that has several replies: each gets all but the last. */
  Call start(
      Type type,
      MessageLite m,
      ByteBuffer data,
      Parser<? extends MessageLite> parser,
      Consumer<MessageLite> each)
      throws IOException {
    try {
      slots.acquire();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while waiting for fewer requests in flight");
    }
    Call c = new Call(type, parser, each);
    c.counted = true;
    try {
      send(c, type, m, data);
    } catch (IOException e) {
      c.finish(null, null, e); // gives the slot back, once
      throw e;
    }
    return c;
  }

  /** Sends a request without waiting. Late, if there is one, gets the outcome. */
  void post(Type type, MessageLite m, Consumer<Call> late) {
    Call c = new Call(type, Forebay.Empty.parser(), null);
    c.late = late;
    try {
      send(c, type, m, null);
    } catch (IOException e) {
      c.finish(null, null, e);
    }
  }

  private void send(Call c, Type type, MessageLite m, ByteBuffer data) throws IOException {
    synchronized (lock) {
      if (reason != null) {
        throw new BrokenException(reason, false);
      }
      calls.put(c.id, c);
    }
    writing.lock();
    try {
      out.write(type.getNumber(), 0, c.id, m, data);
    } catch (Frames.MalformedException e) {
      synchronized (lock) {
        calls.remove(c.id);
      }
      throw new ForebayException(Kind.INVALID, "request", type.name(), e.getMessage());
    } catch (IOException e) {
      fail(e);
      throw new BrokenException(e, true);
    } finally {
      writing.unlock();
    }
  }

  private void readAll() {
    try {
      while (true) {
        in.next();
        dispatch();
      }
    } catch (IOException | RuntimeException | Error e) {
      fail(e); // else threads would wait for a reply for ever
    }
  }

  private void dispatch() throws IOException {
    boolean more = in.has(Frames.MORE);
    Call c;
    synchronized (lock) {
      c = more ? calls.get(in.request) : calls.remove(in.request);
    }
    if (c == null || !in.has(Frames.REPLY) || more && c.each == null) {
      String what = "a reply to request " + in.request + ", which is not in flight";
      throw new Frames.MalformedException(what);
    }
    MessageLite m = null;
    IOException error = null;
    byte[] data = null;
    try {
      if (in.has(Frames.ERROR)) {
        error = asException(c.type, in.decode(Forebay.Error.parser()));
      } else {
        m = in.decode(c.parser);
      }
      if (in.dataLength > 0) {
        data = in.data();
      }
    } catch (InvalidProtocolBufferException e) {
      error = new ForebayException(Kind.INTERNAL, "request", "", e.getMessage());
    } catch (IOException e) {
      c.finish(null, null, new BrokenException(e, true));
      throw e;
    }
    if (more) {
      c.each.accept(m);
    } else {
      c.finish(m, data, error);
    }
  }

  /** Returns the error that is the answer to a request of a type. */
  static ForebayException asException(Type type, Forebay.Error m) {
    Kind kind = Kind.of(m.getKind());
    return new ForebayException(
        kind,
        m.getOp(),
        m.getPath(),
        m.getNode(),
        m.getReason(),
        m.getRemedy(),
        null,
        Repetition.mayBeDone(type, m.getOutcome(), kind));
  }

  /** Ends the session. Every call in flight fails, and so does every later one. */
  void fail(Throwable why) {
    List<Call> all;
    synchronized (lock) {
      if (reason == null) {
        reason = why;
      }
      broken = true;
      all = new ArrayList<>(calls.values());
      calls.clear();
    }
    try {
      transport.close();
    } catch (IOException e) {
      // It is of no use any more either way.
    }
    for (Call c : all) {
      c.finish(null, null, new BrokenException(why, true));
    }
  }

  /** Ends the session and waits for its thread, unless that is the caller. */
  void close(Throwable why) {
    fail(why);
    boolean interrupted = false;
    while (Thread.currentThread() != reader) {
      try {
        reader.join();
        break;
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Closes a handle without waiting for the answer. */
  void closeHandle(long handle) {
    post(Type.TYPE_CLOSE, Forebay.Close.newBuilder().setHandle(handle).build(), null);
  }
}
