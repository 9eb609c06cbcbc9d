package forebay.client;

import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A connection to a daemon. When it breaks, operations connect again, and continue where they were.
 * Open files do so, too. It may be used concurrently.
 */
public final class Client implements Closeable {
  private static final Duration RETRY = Duration.ofSeconds(30);

  private final Dialer dialer;
  private final Duration retryFor;
  private final boolean verifyAll;
  private final RegionMap regionMap = new RegionMap();
  private final ScheduledThreadPoolExecutor timer;
  private final ReentrantLock dialing = new ReentrantLock(); // held by who may replace current
  private final Map<String, Leases> leases = new HashMap<>(); // guards itself and closed
  private final Set<Runnable> files = new HashSet<>(); // the release of each open file; likewise
  private volatile Session current;
  private volatile boolean closed;

  /** An operation on a live session. */
  interface Step<T> {
    T run(Session s) throws IOException;
  }

  /** Says which daemon a client talks to, and how. */
  public record Server(
      String address, String node, String version, int protocol, int uid, int gid, boolean mapped) {}

  private Client(ClientOptions o) throws IOException {
    dialer = new Dialer(o);
    retryFor = o.retryFor() == null ? RETRY : o.retryFor();
    verifyAll = o.verifyAll();
    timer =
        new ScheduledThreadPoolExecutor(
            1,
            r -> {
              Thread t = new Thread(r, "forebay-idle");
              t.setDaemon(true);
              return t;
            });
    timer.setKeepAliveTime(5, TimeUnit.SECONDS);
    timer.allowCoreThreadTimeOut(true);
    timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    // A file that close has released has nothing left to return.
    timer.setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy());
    current = dialer.dial();
  }

  /** Connects to a daemon. Without one it fails at once, naming the sockets that it tried. */
  public static Client dial(ClientOptions o) throws IOException {
    return new Client(o);
  }

  /** Connects to this machine's daemon. */
  public static Client dial() throws IOException {
    return dial(ClientOptions.defaults());
  }

  /** Says which daemon the client talks to, or last did. */
  public Server server() {
    Session s = current;
    Forebay.Welcome w = s.welcome;
    return new Server(
        s.address,
        w.getNode(),
        w.getServer(),
        w.getVersion(),
        w.getUid(),
        w.getGid(),
        w.getMapRegions());
  }

  /** Returns the token with which the client proves itself over TCP, or null without one. */
  public Token token() {
    return dialer.token();
  }

  /** Returns a handle of a buffer, which need not exist. It does no I/O. */
  public Buffer buffer(String name) {
    return new Buffer(this, name);
  }

  /** Makes a buffer and returns it as the daemon completed it. */
  public BufferSpec createBuffer(BufferSpec spec) throws IOException {
    try {
      return BufferSpec.of(
          ask(
              Type.TYPE_BUFFER_CREATE,
              spec.message(),
              Forebay.Buffer.parser(),
              Forebay.Buffer.class));
    } catch (IOException e) {
      throw ForebayException.about("create buffer", "bb://" + spec.name(), e);
    }
  }

  /** Describes a buffer. */
  public BufferSpec bufferInfo(String name) throws IOException {
    try {
      return BufferSpec.of(
          ask(
              Type.TYPE_BUFFER_GET,
              Forebay.BufferName.newBuilder().setName(name).build(),
              Forebay.Buffer.parser(),
              Forebay.Buffer.class));
    } catch (IOException e) {
      throw ForebayException.about("buffer", "bb://" + name, e);
    }
  }

  /** Lists the buffers that this user may see, by name. */
  public List<BufferSpec> buffers() throws IOException {
    Forebay.Buffers m =
        ask(
            Type.TYPE_BUFFER_LIST,
            Forebay.Empty.getDefaultInstance(),
            Forebay.Buffers.parser(),
            Forebay.Buffers.class);
    return m.getBuffersList().stream().map(BufferSpec::of).toList();
  }

  /** Removes a buffer and all it holds. Without discard it fails while anything in it is dirty. */
  public void destroyBuffer(String name, boolean discard) throws IOException {
    Forebay.BufferDestroy m =
        Forebay.BufferDestroy.newBuilder().setName(name).setDiscard(discard).build();
    try {
      ask(Type.TYPE_BUFFER_DESTROY, m, Forebay.Empty.parser(), Forebay.Empty.class);
    } catch (IOException e) {
      throw ForebayException.about("destroy buffer", "bb://" + name, e);
    }
  }

  /**
   * Drains a buffer, or a path with everything below it. After a broken connection it begins again,
   * which does nothing twice.
   */
  DrainReport drain(String buffer, String below) throws IOException {
    return drain(Forebay.Drain.newBuilder().setBuffer(buffer).setBelow(below));
  }

  /** Drains as a request describes. */
  DrainReport drain(Forebay.Drain.Builder request) throws IOException {
    Forebay.Drain m =
        request
            .setKey(UUID.randomUUID().toString())
            .build();
    try {
      return retry(
          s -> {
            Session.Call c =
                s.start(Type.TYPE_DRAIN, m, null, Forebay.Progress.parser(), reply -> {});
            try {
              return DrainReport.of(c.await(Forebay.Progress.class));
            } catch (InterruptedIOException e) {
              c.abandon(null);
              throw e;
            }
          });
    } catch (IOException e) {
      throw ForebayException.about("drain", "bb://" + m.getBuffer() + "/" + m.getBelow(), e);
    }
  }

  RegionMap regionMap() {
    return regionMap;
  }

  boolean verifiesAll() {
    return verifyAll;
  }

  /** Returns where the outputs of a buffer get memory from. */
  Leases leases(String buffer) throws IOException {
    synchronized (leases) {
      if (closed) {
        throw closedClient();
      }
      return leases.computeIfAbsent(buffer, b -> new Leases(b, regionMap, timer));
    }
  }

  /** Registers the release of a file for close, until it is removed. */
  void opened(Runnable release) throws IOException {
    synchronized (leases) {
      if (!closed) {
        files.add(release);
        return;
      }
    }
    release.run();
    throw closedClient();
  }

  void forget(Runnable release) {
    synchronized (leases) {
      files.remove(release);
    }
  }

  private static ForebayException closedClient() {
    return new ForebayException(Kind.INVALID, "client", "", "it is closed");
  }

  /** Returns a live session, connecting again if need be. */
  private Session session() throws IOException {
    Session s = current;
    if (s.alive()) {
      return s;
    }
    try {
      dialing.lockInterruptibly();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while connecting again");
    }
    try {
      if (current.alive()) {
        return current;
      }
      if (closed) {
        throw closedClient();
      }
      s = dialer.redial(retryFor);
      synchronized (leases) {
        if (!closed) {
          current = s;
        }
      }
      if (current != s) {
        s.close(closedClient());
        throw closedClient();
      }
      regionMap.sweep();
      return s;
    } finally {
      dialing.unlock();
    }
  }

  /**
   * Runs a step on a live session, and again on a new one as long as sessions break under it, for a
   * bounded time. The step must be safe to repeat.
   */
  <T> T retry(Step<T> step) throws IOException {
    long deadline = 0;
    while (true) {
      Session s = session();
      try {
        return step.run(s);
      } catch (BrokenException e) {
        if (closed) {
          throw closedClient();
        }
        long now = System.nanoTime();
        if (deadline == 0) {
          deadline = now + retryFor.toNanos();
        }
        if (now - deadline >= 0) {
          throw e;
        }
      }
    }
  }

  /**
   * Sends a request and waits for the reply. If the connection breaks meanwhile, it sends the
   * request again, unless that may have been sent before and must not be carried out twice. Then
   * the error reports that the outcome is unknown.
   */
  <T extends MessageLite> T ask(Type type, MessageLite m, Parser<T> parser, Class<T> reply)
      throws IOException {
    if (Repetition.mayRepeat(type, m)) {
      return retry(s -> s.ask(type, m, parser, reply));
    }
    return retry(
        s -> {
          try {
            return s.ask(type, m, parser, reply);
          } catch (BrokenException e) {
            if (!e.sent) {
              throw e;
            }
            String why = "it may have been carried out: " + e.getMessage() + " before the answer came";
            throw ForebayException.unknown("", "", why, "check whether it was done", e.getCause());
          } catch (ForebayException e) {
            throw e.sayingOutcome();
          }
        });
  }

  /**
   * Ends the session. Blocked operations fail. Files that were not closed lose their uncommitted
   * committed. Mappings stay readable until they are closed. It may be called twice.
   */
  @Override
  public void close() {
    List<Leases> all;
    List<Runnable> open;
    synchronized (leases) {
      if (closed) {
        return;
      }
      closed = true;
      all = new ArrayList<>(leases.values());
      open = new ArrayList<>(files);
    }
    current.close(closedClient());
    timer.shutdownNow();
    open.forEach(Runnable::run);
    all.forEach(Leases::close);
    regionMap.close();
  }
}
