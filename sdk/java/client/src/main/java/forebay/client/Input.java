package forebay.client;

import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A file that is open for reading: its committed content at the open, regardless of later changes
 * to its name. It may be used concurrently. After a connection broke it opens the file again and
 * checks that it is still the same.
 *
 * <p>Bytes that are read in sequence, or come as a whole extent, are checked against the checksum
 * it was written with. With {@link ClientOptions#verifyAll} everything is.
 */
public final class Input implements Closeable {
  private static final long MAPPED_WINDOW = 32 << 20; // pinned meanwhile
  private static final long INLINE_WINDOW = 1 << 20; // the bytes travel, and are kept
  private static final int MAX_WINDOWS = 8;
  private static final int SEQUENTIAL_WINDOWS = 2; // while reading from front to back

  private final Client client;
  private final String buffer;
  private final String path;
  private final ReentrantLock fetching = new ReentrantLock(); // held by the thread of a request

  private final Runnable release = this::close; // as registered with the client
  private volatile Entry entry; // as it was opened
  private volatile long last; // end of the last read, from which a read is sequential

  // Guarded by this.
  private final List<Window> windows = new ArrayList<>(MAX_WINDOWS + 1); // oldest first
  private int used; // windows in use, whose pins the daemon ends with the handle
  private Session session;
  private long handle;
  private boolean closed;

  Input(Client client, String buffer, String path) throws IOException {
    this.client = client;
    this.buffer = buffer;
    this.path = path;
    try {
      client.retry(
          s -> {
            bind(s);
            return null;
          });
    } catch (IOException e) {
      throw ForebayException.about("open", address(), e);
    }
    client.opened(release);
  }

  private String address() {
    return "bb://" + buffer + "/" + path;
  }

  /** Returns the entry as it was when the file was opened. */
  public Entry entry() {
    return entry;
  }

  /** Returns the size in bytes. */
  public long size() {
    return entry.size();
  }

  /** Makes sure that the file is open in a session. */
  private void bind(Session s) throws IOException {
    synchronized (this) {
      if (session == s) {
        return;
      }
    }
    long h = s.nextHandle();
    Forebay.Open m =
        Forebay.Open.newBuilder()
            .setHandle(h)
            .setBuffer(buffer)
            .setPath(path)
            .setWant(s.maps ? (int) MAPPED_WINDOW : s.welcome.getInlineThreshold())
            .build();
    Session.Call c = s.start(Type.TYPE_OPEN, m, null, Forebay.Opened.parser());
    Forebay.Opened opened;
    try {
      opened = c.await(Forebay.Opened.class);
    } catch (BrokenException e) {
      throw e;
    } catch (InterruptedIOException e) {
      c.abandon(late -> s.closeHandle(h));
      throw e;
    } catch (IOException e) {
      s.closeHandle(h); // an open that failed leaves a handle, too
      throw e;
    }
    adopt(s, h, opened, c.data());
  }

  /** Takes the answer to an open over, unless it is about another content than before. */
  private void adopt(Session s, long h, Forebay.Opened m, byte[] data) throws IOException {
    Entry now = Entry.of(path, m.getEntry());
    Entry was = entry;
    if (was != null
        && (now.file() != was.file()
            || m.getGeneration() != was.generation()
            || now.size() < was.size())) {
      s.closeHandle(h);
      throw new ForebayException(
          Kind.UNAVAILABLE,
          "read",
          address(),
          "the connection broke, and the file has other content since",
          "open it again");
    }
    if (was == null) {
      entry = withGeneration(now, m.getGeneration());
    }
    Window w = null;
    if (m.hasExtents() && size() > 0) {
      try {
        w = new Window(client.regionMap(), s, 0, m.getExtents(), data);
      } catch (IOException e) {
        // Reading repeats the request, in another way or for the reason.
      }
    }
    List<Window> unused = new ArrayList<>();
    boolean gone;
    synchronized (this) {
      forgetAll(unused);
      gone = closed;
      if (!gone) {
        session = s;
        handle = h;
      }
      if (w != null && !gone && w.end > w.start) {
        windows.add(w);
      } else if (w != null) {
        unused.add(w);
      }
    }
    unused.forEach(Window::release);
    if (gone) {
      s.closeHandle(h);
      throw closedFile();
    }
  }

  private static Entry withGeneration(Entry e, long generation) {
    return new Entry(
        e.path(),
        e.directory(),
        e.file(),
        generation,
        e.size(),
        e.checksum(),
        e.state(),
        e.reason(),
        e.holders(),
        e.mode(),
        e.uid(),
        e.gid(),
        e.modified(),
        e.target());
  }

  private ForebayException closedFile() {
    return new ForebayException(Kind.INVALID, "read", address(), "the file is closed");
  }

  private static long windowSize(Session s) {
    return s.maps ? MAPPED_WINDOW : INLINE_WINDOW;
  }

  /**
   * Reads up to len bytes at an offset, fewer only at the end of the file.
   *
   * @return the number of bytes read, or -1 if the file ends at or before the offset
   */
  public int read(long offset, byte[] b, int off, int len) throws IOException {
    Objects.checkFromIndexSize(off, len, b.length);
    return read(offset, b, null, off, len);
  }

  /** Reads into the rest of a buffer, whose position moves. See the other one. */
  public int read(long offset, ByteBuffer b) throws IOException {
    if (b.isReadOnly()) {
      throw new ReadOnlyBufferException();
    }
    int at = b.position();
    int n =
        b.hasArray()
            ? read(offset, b.array(), null, b.arrayOffset() + at, b.remaining())
            : read(offset, null, b, at, b.remaining());
    if (n > 0) {
      b.position(at + n);
    }
    return n;
  }

  private int read(long offset, byte[] array, ByteBuffer target, int to, int len)
      throws IOException {
    if (offset < 0) {
      throw new ForebayException(Kind.INVALID, "read", address(), "the offset is negative");
    }
    if (len == 0) {
      check();
      return 0;
    }
    long left = size() - offset;
    if (left <= 0) {
      check();
      return -1;
    }
    int want = (int) Math.min(len, left);
    boolean checked = last == offset || client.verifiesAll();
    last = offset + want;
    int n = 0;
    while (n < want) {
      Window w = window(offset + n);
      try {
        Window.Part p = w.at(offset + n);
        int k = (int) Math.min(want - n, p.end - offset - n);
        p.copy(offset + n, array, target, to + n, k, checked);
        if (w.holds()) { // else the pin was void, and the copied bytes may be anything
          n += k;
        }
      } catch (ForebayException e) {
        if (w.holds()) {
          throw ForebayException.about("read", address(), e);
        }
      } finally {
        done(w);
      }
    }
    return n;
  }

  private synchronized void check() throws IOException {
    if (closed) {
      throw closedFile();
    }
  }

  /** Returns the window that holds an offset, which lies in the file. Call done after use. */
  private Window window(long offset) throws IOException {
    Window w = find(offset);
    if (w != null) {
      return w;
    }
    try {
      return client.retry(
          s -> {
            fetching.lock();
            try {
              bind(s);
              Window there = find(offset);
              return there != null ? there : fetch(s, offset);
            } finally {
              fetching.unlock();
            }
          });
    } catch (IOException e) {
      throw ForebayException.about("read", address(), e);
    }
  }

  private synchronized Window find(long offset) throws IOException {
    check();
    if (!session.alive()) {
      return null;
    }
    for (int i = windows.size() - 1; i >= 0; i--) { // an iterator would be garbage
      Window w = windows.get(i);
      if (w.start <= offset && offset < w.end) {
        use(w);
        return w;
      }
    }
    return null;
  }

  private Window fetch(Session s, long offset) throws IOException {
    long size = windowSize(s);
    long start = offset & -size;
    long length = size;
    synchronized (this) {
      for (Window w : windows) {
        if (w.start == start || w.end == offset) {
          start = offset; // the answer for all of it was short
          length = size - (offset & (size - 1));
        }
      }
    }
    Window w = ask(s, start, length);
    if (w.end <= offset) {
      w.release(); // this one was short, too
      w = ask(s, offset, size - (offset & (size - 1)));
    }
    if (w.end <= offset) {
      w.release();
      throw new ForebayException(
          Kind.INTERNAL, "read", address(), "the daemon answered a question for bytes with none");
    }
    List<Window> unused = new ArrayList<>();
    synchronized (this) {
      if (closed) {
        w.release();
        throw closedFile();
      }
      boolean sequential =
          !windows.isEmpty() && windows.get(windows.size() - 1).end == w.start;
      int keep = sequential ? SEQUENTIAL_WINDOWS : MAX_WINDOWS;
      windows.add(w);
      use(w);
      while (windows.size() > keep) {
        drop(windows.remove(0), unused);
      }
    }
    unused.forEach(Window::release);
    return w;
  }

  private Window ask(Session s, long offset, long length) throws IOException {
    long h;
    synchronized (this) {
      h = handle;
    }
    Forebay.ExtentsRequest m =
        Forebay.ExtentsRequest.newBuilder()
            .setHandle(h)
            .setOffset(offset)
            .setLength(length)
            .setInline(!s.maps)
            .build();
    Session.Call c = s.start(Type.TYPE_EXTENTS, m, null, Forebay.Extents.parser());
    try {
      Forebay.Extents got = c.await(Forebay.Extents.class);
      return new Window(client.regionMap(), s, offset, got, c.data());
    } catch (InterruptedIOException e) {
      c.abandon(late -> unpin(s, late));
      throw e;
    }
  }

  private static void unpin(Session s, Session.Call late) {
    if (late.error() == null && late.reply() instanceof Forebay.Extents x && x.getPin() != 0) {
      s.post(Type.TYPE_UNPIN, Forebay.Unpin.newBuilder().addPins(x.getPin()).build(), null);
    }
  }

  private static void drop(Window w, List<Window> unused) {
    w.dropped = true;
    if (w.users == 0) {
      unused.add(w);
    }
  }

  private void forgetAll(List<Window> unused) {
    windows.forEach(w -> drop(w, unused));
    windows.clear();
  }

  /** Begins the use of a window. This object is locked. */
  private void use(Window w) {
    if (++w.users == 1) {
      used++;
    }
  }

  /** Ends the use of a window. With the last one in use ends the handle of a closed file. */
  void done(Window w) {
    boolean release;
    boolean end;
    synchronized (this) {
      if (--w.users == 0) {
        used--;
      }
      release = w.users == 0 && w.dropped;
      end = closed && w.users == 0 && used == 0;
    }
    if (release) {
      w.release();
    }
    if (end) {
      closeHandle();
    }
  }

  /** Closes the handle of a closed file of which nothing is in use, which ends all its pins. */
  private void closeHandle() {
    if (session.alive()) {
      session.closeHandle(handle);
    }
  }

  /**
   * Returns up to length bytes from an offset on, clipped to the file's size, where they lie in
   * memory, which is pinned until the mapping is closed. Nothing is copied, and nothing checked
   * unless {@link ClientOptions#verifyAll} ({@link Mapping#verify}). Where bytes travel in messages
   * it is a checked copy.
   */
  public Mapping map(long offset, long length) throws IOException {
    if (offset < 0 || length < 0) {
      throw new ForebayException(
          Kind.INVALID, "map", address(), length + " bytes at " + offset + " are out of bounds");
    }
    check();
    Mapping m = new Mapping(this);
    boolean done = false;
    try {
      long end = offset + Math.min(length, Math.max(0, size() - offset));
      for (long at = offset; at < end; ) {
        Window w = window(at);
        m.add(w, at, Math.min(end, w.end));
        at = Math.min(end, w.end);
      }
      if (client.verifiesAll()) {
        m.verify();
      }
      done = true;
      return m;
    } finally {
      if (!done) {
        m.close();
      }
    }
  }

  /** Releases the bytes kept for further reads. The file stays open. */
  public void unbuffer() {
    List<Window> unused = new ArrayList<>();
    synchronized (this) {
      forgetAll(unused);
    }
    unused.forEach(Window::release);
  }

  /**
   * Lets go of the file. Reads that are under way finish, mappings stay. It may be called twice.
   */
  @Override
  public void close() {
    List<Window> unused = new ArrayList<>();
    boolean end;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      forgetAll(unused);
      end = used == 0;
    }
    client.forget(release);
    unused.forEach(Window::release);
    if (end) {
      closeHandle();
    }
  }
}
