package forebay.client;

import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;
import java.util.zip.Checksum;

/**
 * A file that is open for writing. Bytes are copied once, into a region. Nothing is visible to
 * others before {@link #sync} or {@link #close}, and then all of it is at once. It may be used
 * concurrently. Calls are carried out one after the other.
 *
 * <pre>
 *   open ──commit (sync)──▶ open ──commit (close)──▶ closed ◀── abort
 *     ▲ connection broke: resume
 * </pre>
 *
 * Resuming opens the same generation again and writes unacknowledged bytes a second time, from
 * the old leases, which stay mapped, into new ones.
 */
public final class Output implements Closeable {
  private static final int EXTENT = 1 << 20; // no extent crosses a multiple of it in the file
  private static final int MAX_EXTENTS = 8000; // a commit of them fits into a message
  private static final long MAX_FILE = 1L << 50;
  private static final int WORTH_TAKING = 64 << 10;
  private static final long FLUSH_POLL_MS = 50;

  private final Client client;
  private final Leases leases;
  private final String buffer;
  private final String path;
  private final WriteOptions o;
  private final boolean fence; // ends other writers of the file
  private final ReentrantLock turn = new ReentrantLock(); // guards the fields below
  private final Runnable release = this::abort; // as registered with the client
  private final Checksum sum = Crc64Nvme.create(); // of the last extent

  private Session session;
  private long handle;
  private long file;
  private long goesOn; // the file of which a generation was closed, and the next one continues; 0: any
  private long generation;
  private int tier; // the tier of its bytes: memory or disk
  private boolean acknowledged; // something of this generation
  private boolean doubt; // a commit may have landed whose answer was lost
  private long base; // the file's committed generation when it was opened; 0: there was no file
  private boolean closing;
  private boolean landed; // the closing commit has
  private boolean closed;
  private IOException broken; // the error that ends all use of the file

  private final long writer = ThreadLocalRandom.current().nextLong() | 1;
  private long number; // of the last commit that was sent
  private long remembered; // the number of our last commit in a generation that was closed
  private long sent = -1; // bytes written at that time, if they are not acknowledged

  private final List<Extent> pending = new ArrayList<>();
  // Pending bytes that are being written again elsewhere.
  private final Map<List<Extent>, Boolean> asides = new IdentityHashMap<>();
  private Memory memory; // being filled; null: none
  private Memory inline; // bytes that travel in the commit; null: not needed so far
  private boolean small = true; // it is not worth a lease yet

  private long size;
  private long position;
  private long written;
  private final byte[] one = new byte[1];

  /** A run of the file's bytes that waits for a commit. */
  private static final class Extent {
    final Memory memory;
    final int at; // in the memory
    final long offset; // in the file
    int length;
    long sum;

    Extent(Memory memory, int at, long offset) {
      this.memory = memory;
      this.at = at;
      this.offset = offset;
    }
  }

  /** An operation on a live session. */
  private interface Step {
    void run(Session s) throws IOException;
  }

  Output(Client client, String buffer, String path, WriteOptions o, boolean fence)
      throws IOException {
    this.client = client;
    this.leases = client.leases(buffer);
    this.buffer = buffer;
    this.path = path;
    this.o = o;
    this.fence = fence;
    boolean[] sentOpen = new boolean[1];
    client.retry(
        s -> {
          if (sentOpen[0] && (o.exclusive() || fence)) {
            throw unknown();
          }
          try {
            open(s);
          } catch (BrokenException e) {
            sentOpen[0] |= e.sent;
            throw e;
          }
          return null;
        });
    position = o.append() ? size : 0;
    leases.enter();
    client.opened(release);
  }

  private String address() {
    return "bb://" + buffer + "/" + path;
  }

  private ForebayException unknown() {
    return ForebayException.unknown(
        fence ? "recover" : "create",
        address(),
        "the connection broke before the daemon answered",
        fence ? "do it again: it does no harm where nobody writes" : "check whether the file exists",
        null);
  }

  /** Opens the file in a session, and returns whether the generation was closed meanwhile. */
  private boolean open(Session s) throws IOException {
    return open(s, o.create(), o.exclusive(), o.truncate());
  }

  private boolean open(Session s, boolean create, boolean exclusive, boolean truncate)
      throws IOException {
    long h = s.nextHandle();
    Forebay.Open m =
        Forebay.Open.newBuilder()
            .setHandle(h)
            .setBuffer(buffer)
            .setPath(path)
            .setWrite(true)
            .setCreate(create)
            .setExclusive(exclusive)
            .setTruncate(truncate)
            .setMode(o.mode())
            .setResumeFile(file)
            .setResumeGeneration(generation)
            .setResumeCommitted(acknowledged)
            .setResumeWriter(file == 0 ? 0 : writer)
            .setFence(fence && file == 0)
            .build();
    Forebay.Opened opened;
    try {
      opened = s.ask(Type.TYPE_OPEN, m, Forebay.Opened.parser(), Forebay.Opened.class);
    } catch (BrokenException e) {
      throw e;
    } catch (IOException e) {
      s.closeHandle(h); // an open that failed leaves a handle, too
      throw e;
    }
    session = s;
    handle = h;
    if (opened.getAlreadyClosed()) {
      remembered = opened.getCommitted();
      return true;
    }
    Forebay.Entry e = opened.getEntry();
    if (goesOn != 0 && goesOn != e.getFile()) {
      throw fail(
          new ForebayException(
              Kind.UNAVAILABLE,
              "open",
              address(),
              "the connection broke, and another file has this name since",
              "write the file again"));
    }
    file = e.getFile();
    generation = opened.getGeneration();
    base = e.getGeneration();
    tier = opened.getTier();
    size = Math.max(size, e.getSize());
    acknowledged |= exclusive; // its name is visible
    return false;
  }

  /** Runs a step while the file is open in a live session, resuming it if need be. */
  private void live(Step step) throws IOException {
    client.retry(
        s -> {
          throwIfBroken();
          if (session != s) {
            resume(s);
          }
          step.run(s);
          return null;
        });
  }

  /** Opens the file again at its position, and writes unacknowledged bytes again. */
  private void resume(Session s) throws IOException {
    long oldFile = file;
    long oldGeneration = generation;
    long oldBase = base;
    long oldSize = size;
    boolean closed;
    try {
      closed = open(s);
    } catch (ForebayException e) {
      if (doubt && (e.kind() == Kind.NOT_FOUND || e.kind() == Kind.LOST)) {
        throw fail(unknownCommit()); // the generation is gone, with the commit or without it
      }
      throw e;
    }
    if (closed) {
      reopen(s);
    } else if (doubt && !goesOn(oldFile, oldGeneration, oldBase)) {
      resolve(oldSize);
    }
    if (landed) {
      return;
    }
    for (Extent e : pending) {
      if (e.memory instanceof Lease l && l.session != session) {
        move();
        return;
      }
    }
    if (memory instanceof Lease l && l.session != session) {
      l.release();
      memory = null;
    }
  }

  /**
   * Reports whether a commit that was not answered may be sent again to the file opened now: the
   * generation that it was sent to, whose owner carries it out once, or a file without a commit by
   * others since it was first opened.
   */
  private boolean goesOn(long oldFile, long oldGeneration, long oldBase) {
    return base == 0 && oldBase == 0
        || file == oldFile && (generation == oldGeneration || base == oldBase);
  }

  /**
   * Determines the outcome of an unanswered commit, after the file got another content. Either it
   * is that content, or the outcome is unknown.
   */
  private void resolve(long withIt) throws IOException {
    long at;
    long as;
    try (Input in = new Input(client, buffer, path)) {
      if (in.entry().size() != withIt || !holdsPending(in)) {
        throw fail(unknownCommit());
      }
      at = in.entry().file();
      as = in.entry().generation();
    } catch (ForebayException e) {
      throw e.kind() == Kind.NOT_FOUND ? fail(unknownCommit()) : e;
    }
    doubt = false;
    if (!closing) {
      // No commit was ever acknowledged, so all that was written is pending still. It goes into
      // the reopened file, which may have begun without it, and which another writer may have
      // joined.
      sent = -1;
      return;
    }
    Forebay.Commit leave =
        Forebay.Commit.newBuilder().setHandle(handle).setClose(true).setAbort(true).build();
    session.post(Type.TYPE_COMMIT, leave, null);
    file = at;
    generation = as;
    allCommitted();
    landed = true;
    awaitFlush();
  }

  private ForebayException unknownCommit() {
    return ForebayException.unknown(
        closing ? "close" : "sync",
        address(),
        "the connection broke before the daemon answered, and the file has other content since",
        "check the file's content, and write it again if needed",
        null);
  }

  private ForebayException fail(ForebayException e) {
    broken = e;
    return e;
  }

  /**
   * Throws the error that ended all use of the file. It is a new exception each time, since one
   * cannot suppress itself.
   */
  private void throwIfBroken() throws IOException {
    if (broken instanceof ForebayException f) {
      throw f.here();
    }
    if (broken != null) {
      throw new IOException(broken.getMessage(), broken);
    }
  }

  /**
   * Goes on after the daemon closed the generation when it missed its writer, or because our
   * closing commit has landed, whose answer was lost.
   */
  private void reopen(Session s) throws IOException {
    s.closeHandle(handle);
    if (doubt) {
      // While something is aside, the last commit may have been of a part.
      boolean last = asides.isEmpty() && sent == written && number != 0 && remembered >= number;
      boolean there = last || holdsPending();
      doubt = false;
      if (there) {
        allCommitted();
        if (closing) {
          landed = true;
          awaitFlush();
          return;
        }
      }
    }
    anew(s);
  }

  /** Begins a new generation, on top of the closed one. Pending bytes go to the same places. */
  private void anew(Session s) throws IOException {
    goesOn = file;
    file = 0;
    generation = 0;
    acknowledged = false;
    open(s, false, false, false);
  }

  /**
   * Waits, where the buffer's durability requires it, until the file is on the store. The answer
   * with that result was lost.
   */
  private void awaitFlush() throws IOException {
    if (!client.bufferInfo(buffer).durability().equals("flushed")) {
      return;
    }
    while (true) {
      Entry e = client.buffer(buffer).stat(path);
      if (e.file() != file || e.generation() != generation) {
        throw new ForebayException(
            Kind.UNAVAILABLE,
            "close",
            address(),
            "it was committed, but replaced before it was known to be on the store");
      }
      if (e.state() == Entry.State.CLEAN || e.state() == Entry.State.EVICTED) {
        return;
      }
      try {
        Thread.sleep(FLUSH_POLL_MS);
      } catch (InterruptedException x) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted while waiting for the flush");
      }
    }
  }

  /** Reports whether everything uncommitted is in the file as it is now. */
  private boolean holdsPending() throws IOException {
    try (Input in = new Input(client, buffer, path)) {
      if (in.entry().file() != file || in.entry().generation() != generation) {
        throw fail(unknownCommit());
      }
      return holdsPending(in);
    } catch (ForebayException e) {
      throw e.kind() == Kind.NOT_FOUND ? fail(unknownCommit()) : e;
    }
  }

  private boolean holdsPending(Input in) throws IOException {
    byte[] p = new byte[EXTENT];
    List<Extent> all = new ArrayList<>(pending);
    asides.keySet().forEach(all::addAll);
    for (Extent e : all) {
      if (in.read(e.offset, p, 0, e.length) < e.length || Crc64Nvme.of(p, 0, e.length) != e.sum) {
        return false;
      }
    }
    return true;
  }

  /**
   * Writes everything pending to other memory. If the connection breaks meanwhile, nothing is lost.
   * Bytes written again by then are put aside, too.
   */
  private void move() throws IOException {
    List<Extent> aside = new ArrayList<>(pending);
    asides.put(aside, true);
    pending.clear();
    List<Memory> old = new ArrayList<>();
    for (Extent e : aside) {
      if (!old.contains(e.memory)) {
        old.add(e.memory);
      }
    }
    if (memory != null && !old.contains(memory)) {
      drop(memory);
    }
    memory = null;
    if (old.contains(inline)) {
      inline = null;
    }
    long before = written;
    byte[][] copies = new byte[aside.size()][];
    try {
      for (int i = 0; i < copies.length; i++) {
        Extent e = aside.get(i);
        if (copies[i] == null) {
          copyOut(aside, i, copies);
          old.remove(e.memory);
          drop(e.memory);
        }
        put(copies[i], null, 0, e.length, e.offset);
        copies[i] = null;
        if (!asides.containsKey(aside)) {
          break; // it turned out to be committed when the connection broke on the way
        }
      }
    } catch (IOException e) {
      broken = e; // not all bytes put aside are back
      throw e;
    } finally {
      written = before;
      asides.remove(aside);
      old.forEach(this::drop);
    }
  }

  /**
   * Copies everything that is aside in the memory of extent i, and checks the copies, since bytes
   * in a void lease may change. The memory is not needed any more then, and may be the only one
   * that the daemon can lease next.
   */
  private void copyOut(List<Extent> aside, int i, byte[][] copies) throws ForebayException {
    Memory m = aside.get(i).memory;
    for (int j = i; j < copies.length; j++) {
      Extent e = aside.get(j);
      if (e.memory != m) {
        continue;
      }
      copies[j] = new byte[e.length];
      m.bytes.get(m.base + e.at, copies[j]);
      if (Crc64Nvme.of(copies[j], 0, e.length) != e.sum) {
        throw new ForebayException(
            Kind.LOST,
            "write",
            address(),
            "bytes "
                + e.offset
                + " to "
                + (e.offset + e.length)
                + ", which were written but not committed, went with the connection to the daemon",
            "write the file again");
      }
    }
  }

  private void drop(Memory m) {
    m.extents = 0;
    if (m instanceof Lease l) {
      l.release();
    }
  }

  private void begin(String op) throws IOException {
    turn.lock();
    if (closed) {
      turn.unlock();
      throw new ForebayException(Kind.INVALID, op, address(), "the file is closed");
    }
  }

  /** Writes bytes at the position, which moves behind them. It waits only for room. */
  public void write(byte[] b, int off, int len) throws IOException {
    Objects.checkFromIndexSize(off, len, b.length);
    begin("write");
    try {
      put(b, null, off, len, position);
      position += len;
    } catch (IOException e) {
      throw ForebayException.about("write", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /** Writes one byte, the lowest eight bits of b, at the position. */
  public void write(int b) throws IOException {
    begin("write");
    try {
      one[0] = (byte) b;
      put(one, null, 0, 1, position);
      position++;
    } catch (IOException e) {
      throw ForebayException.about("write", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /** Writes the rest of a buffer at the position, which moves behind it. */
  public void write(ByteBuffer b) throws IOException {
    begin("write");
    try {
      int n = b.remaining();
      put(null, b, b.position(), n, position);
      position += n;
      b.position(b.limit());
    } catch (IOException e) {
      throw ForebayException.about("write", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /** Writes the rest of a buffer at an offset. The position stays. */
  public void write(long offset, ByteBuffer b) throws IOException {
    begin("write");
    try {
      put(null, b, b.position(), b.remaining(), offset);
      b.position(b.limit());
    } catch (IOException e) {
      throw ForebayException.about("write", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /** Writes len bytes from at on, of an array or else of a buffer. The caller has the turn. */
  private void put(byte[] array, ByteBuffer source, int at, int len, long offset)
      throws IOException {
    throwIfBroken();
    if (offset < 0 || offset > MAX_FILE - len) {
      throw new ForebayException(
          Kind.INVALID, "write", address(), len + " bytes at " + offset + " are out of bounds");
    }
    while (len > 0) {
      Extent e = extent(len, offset);
      Memory m = e.memory;
      int n = (int) Math.min(Math.min(len, m.room(false)), EXTENT - offset % EXTENT);
      int to = m.base + m.pos;
      if (array != null) {
        m.bytes.put(to, array, at, n);
        sum.update(array, at, n);
      } else {
        m.bytes.put(to, source, at, n);
        Crc64Nvme.update(sum, source, at, n);
      }
      e.length += n;
      e.sum = sum.getValue();
      m.pos += n;
      at += n;
      len -= n;
      offset += n;
      written += n;
      size = Math.max(size, offset);
    }
  }

  /** Returns the extent to which bytes at an offset are added: the last one, or a new one. */
  private Extent extent(int len, long offset) throws IOException {
    while (true) {
      if (memory instanceof Lease && !session.alive()) {
        live(s -> {}); // goes to another lease
      }
      int last = pending.size() - 1;
      if (memory != null && last >= 0) {
        Extent e = pending.get(last);
        if (e.memory == memory
            && e.at + e.length == memory.pos
            && e.offset + e.length == offset
            && offset % EXTENT != 0
            && memory.room(false) > 0) {
          return e;
        }
      }
      if (pending.size() >= MAX_EXTENTS) {
        commit(false);
      }
      if (memory == null || memory.room(true) < Math.min(len, wanted())) {
        provide(len);
        continue; // a commit or a move may have changed everything
      }
      Extent e = new Extent(memory, memory.pos, offset);
      memory.extents++;
      pending.add(e);
      sum.reset();
      return e;
    }
  }

  /** The room that a piece of memory must have left for another extent. */
  private int wanted() {
    return memory.isLease() ? 1 : Math.min(WORTH_TAKING, memory.bytes.capacity());
  }

  /** Makes memory for at least some of len bytes the one being filled. */
  private void provide(int len) throws IOException {
    if (session.maps) {
      int limit = session.welcome.getInlineThreshold();
      boolean little = small && written + len <= limit;
      if (little && inline == null) {
        inline = new Memory(ByteBuffer.allocate(limit), 0, 0, limit);
        memory = inline;
        return;
      }
      if (small) {
        small = false;
        memory = null;
        if (inline != null && inline.extents > 0) {
          move(); // bytes already there go to a lease, too
          return;
        }
        inline = null;
      }
      Memory full = memory;
      memory = null;
      if (full != null && full.extents == 0 && full instanceof Lease l) {
        leases.put(l);
      }
      live(s -> memory = leases.take(s, tier, Math.min(len, WORTH_TAKING), written));
      return;
    }
    int limit = session.welcome.getMaxData();
    if (inline == null || inline.bytes.capacity() < limit) {
      if (inline != null && inline.extents > 0) {
        commit(false);
      }
      inline = new Memory(ByteBuffer.allocate(limit), 0, 0, limit);
    } else if (inline.extents > 0) {
      commit(false);
    }
    memory = inline;
  }

  /** Makes everything pending part of the file. Closing closes the handle too. */
  private void commit(boolean close) throws IOException {
    live(
        s -> {
          if (!landed || !close) {
            commitOn(s, close);
          }
        });
  }

  private void commitOn(Session s, boolean close) throws IOException {
    if (number == 0 || sent != written) {
      number++;
    }
    sent = written;
    Forebay.Commit.Builder m =
        Forebay.Commit.newBuilder()
            .setHandle(handle)
            .setClose(close)
            .setMtimeNs(now())
            .setWriter(writer)
            .setNumber(number);
    ByteBuffer data = null;
    for (Extent e : pending) {
      Forebay.NewExtent.Builder x =
          m.addExtentsBuilder().setFileOffset(e.offset).setLength(e.length).setChecksum(e.sum);
      if (e.memory instanceof Lease l) {
        x.setLease(l.id).setSegmentOffset(e.at);
      } else if (data == null) {
        data = e.memory.bytes.duplicate().position(e.at).limit(e.memory.pos); // one after the other
      }
    }
    Session.Call c = null;
    try {
      c = s.start(Type.TYPE_COMMIT, m.build(), data, Forebay.Committed.parser());
      Forebay.Committed reply = c.await(Forebay.Committed.class);
      file = reply.getFile();
      generation = reply.getGeneration();
      size = Math.max(size, reply.getSize());
      acknowledged = true;
      doubt = false;
      committed();
    } catch (BrokenException e) {
      doubt |= e.sent;
      throw e;
    } catch (InterruptedIOException e) {
      if (c != null) {
        c.abandon(null);
        mayBeWritten();
      }
      throw e;
    } catch (IOException e) {
      if (!mayBeWritten()) {
        move();
      }
      throw e;
    }
  }

  private static long now() {
    Instant t = Instant.now();
    return t.getEpochSecond() * 1_000_000_000L + t.getNano();
  }

  private List<Memory> inUse() {
    List<Memory> used = new ArrayList<>();
    for (Extent e : pending) {
      if (used.isEmpty() || used.get(used.size() - 1) != e.memory) {
        used.add(e.memory); // memory is filled one after the other
      }
    }
    return used;
  }

  /** Counts the room of records that may have been written as gone. */
  private boolean mayBeWritten() {
    boolean again = true;
    for (Memory m : inUse()) {
      m.recorded();
      again &= m.fitsAgain();
    }
    return again;
  }

  /** Says that the records of everything uncommitted are written. */
  private void allCommitted() {
    asides.clear();
    committed();
  }

  /** Says that the records of everything pending are written. */
  private void committed() {
    for (Memory m : inUse()) {
      m.recorded();
      m.extents = 0;
      if (!m.isLease()) {
        m.pos = 0;
      } else if (m != memory) {
        leases.put((Lease) m);
      }
    }
    pending.clear();
    sent = -1; // the next commit is another one
  }

  /**
   * Commits the written bytes, which are then visible to others, and survive this process and the
   * daemon's death. When it fails it may be called again.
   */
  public void sync() throws IOException {
    begin("sync");
    try {
      if (!pending.isEmpty() || !acknowledged || broken != null) {
        commit(false);
        if (small && session.maps && written > 0) {
          small = false; // a file that is synced now and then is written to its lease directly
          memory = null;
          inline = null;
        }
      }
    } catch (IOException e) {
      throw ForebayException.about("sync", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /**
   * Commits the written bytes and closes the file. On a buffer whose durability is "flushed" it
   * waits until the bytes are on the backing store. When it fails, uncommitted bytes are discarded.
   * A second close does nothing.
   */
  @Override
  public void close() throws IOException {
    turn.lock();
    try {
      if (closed) {
        return;
      }
      closing = true;
      boolean done = false;
      try {
        commit(true);
        done = true;
      } finally {
        end(!done);
      }
    } catch (IOException e) {
      throw ForebayException.about("close", address(), e);
    } finally {
      turn.unlock();
    }
  }

  /** Closes the file and discards uncommitted bytes. After close it does nothing. */
  public void abort() {
    turn.lock();
    try {
      if (!closed) {
        end(true);
      }
    } finally {
      turn.unlock();
    }
  }

  private void end(boolean abort) {
    closed = true;
    client.forget(release);
    List<Memory> used = inUse();
    if (memory != null && !used.contains(memory)) {
      used.add(memory);
    }
    pending.clear();
    memory = null;
    inline = null;
    Runnable rest =
        () -> {
          for (Memory m : used) {
            if (m instanceof Lease l) {
              if (l.extents == 0) {
                leases.put(l);
              } else {
                l.release(); // a commit of the pending bytes may be under way
              }
            }
          }
          leases.leave();
        };
    if (!abort || !session.alive()) {
      rest.run();
      return;
    }
    // Leases go back after the abort is through, since a commit may be ahead of it.
    session.post(
        Type.TYPE_COMMIT,
        Forebay.Commit.newBuilder().setHandle(handle).setClose(true).setAbort(true).build(),
        c -> rest.run());
  }

  /** Returns the offset at which the next byte is written. */
  public long position() {
    turn.lock();
    try {
      return position;
    } finally {
      turn.unlock();
    }
  }

  /** Returns the size of the file in bytes, uncommitted ones included. */
  public long size() {
    turn.lock();
    try {
      return size;
    } finally {
      turn.unlock();
    }
  }
}
