package forebay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.Closeable;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Changes whose answers are lost. The daemon carries them out, and the connection ends before the
 * reply.
 */
class OutcomeTest {
  private static final AtomicInteger NAMES = new AtomicInteger();

  private final Daemon daemon = Daemon.get();
  private final String name = "outcome" + NAMES.incrementAndGet();
  private Client direct;
  private Losing losing;
  private Client client;
  private Buffer buffer;

  /** A change of a buffer. */
  private interface Change {
    void run(Buffer b) throws IOException;
  }

  /** Stands between a client and the daemon, and loses the reply to one request. */
  private static final class Losing implements Closeable {
    private static final int HEADER = 24;

    final Path socket;
    private final Path daemon;
    private final ServerSocketChannel listener;
    private Type type; // guarded by this: of the request whose reply is lost; null: none
    private int requests; // guarded by this: of that type
    private Change then; // guarded by this: run when it is carried out; null: nothing
    private int until; // guarded by this: at that request of the resumed writer it breaks again; 0: never
    private boolean early; // guarded by this: the request is lost, not its reply
    private boolean lost; // guarded by this: the first break was

    Losing(Path socket, Path daemon) throws IOException {
      this.socket = socket;
      this.daemon = daemon;
      listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
      listener.bind(UnixDomainSocketAddress.of(socket));
      background(this::accept);
    }

    private static void background(Runnable r) {
      Thread t = new Thread(r, "losing");
      t.setDaemon(true);
      t.start();
    }

    synchronized void lose(Type t, Change c) {
      type = t;
      then = c;
      requests = 0;
      early = false;
    }

    /** Loses one request, and another at a later one of a writer. Each time something happens. */
    synchronized void breakTwice(Type t, int at, Change c) {
      lose(t, c);
      early = true;
      lost = false;
      until = at;
    }

    /** Reports whether the connection has broken as often as it was to. */
    synchronized boolean hasBroken() {
      return lost && until == 0;
    }

    private boolean breaksAgain(int number) {
      Type t = Type.forNumber(number);
      boolean counts =
          t == Type.TYPE_OPEN || t == Type.TYPE_LEASE || t == Type.TYPE_COMMIT || t == Type.TYPE_EXTENTS;
      return counts && until > 0 && --until == 0;
    }

    synchronized int requests() {
      return requests;
    }

    private void accept() {
      try {
        while (true) {
          SocketChannel near = listener.accept();
          try {
            SocketChannel far = SocketChannel.open(UnixDomainSocketAddress.of(daemon));
            background(() -> forward(near, far, true));
            background(() -> forward(far, near, false));
          } catch (IOException e) {
            near.close(); // the daemon is away
          }
        }
      } catch (IOException e) {
        // The test is over.
      }
    }

    /** Forwards frames until one side ends, or a reply is to be lost. */
    private void forward(SocketChannel from, SocketChannel to, boolean request) {
      try (from;
          to) {
        ByteBuffer header = ByteBuffer.allocate(HEADER).order(ByteOrder.LITTLE_ENDIAN);
        while (fill(from, header.clear())) {
          header.flip();
          int length = header.getInt(0) + header.getInt(4);
          ByteBuffer body = ByteBuffer.allocate(length);
          if (!fill(from, body) || loses(header.getShort(16), request)) {
            return;
          }
          write(to, header);
          write(to, body.flip());
        }
      } catch (IOException e) {
        // One side is gone.
      }
    }

    private static void write(SocketChannel to, ByteBuffer b) throws IOException {
      while (b.hasRemaining()) {
        to.write(b);
      }
    }

    private synchronized boolean loses(int number, boolean request) throws IOException {
      if (early) {
        boolean now = request && (lost ? breaksAgain(number) : number == type.getNumber());
        lost |= now;
        if (now) {
          then.run(null);
        }
        return now;
      }
      if (type == null || number != type.getNumber()) {
        return false;
      }
      if (request) {
        requests++;
        return false;
      }
      if (requests > 1) {
        return false; // it was repeated, and the test fails
      }
      if (then != null) {
        then.run(null);
      }
      return true;
    }

    private static boolean fill(SocketChannel from, ByteBuffer b) throws IOException {
      while (b.hasRemaining()) {
        if (from.read(b) < 0) {
          return false;
        }
      }
      return true;
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }

  @BeforeEach
  void dial() throws Exception {
    daemon.start();
    direct = Client.dial(ClientOptions.defaults().withAddress(daemon.socket()));
    Path store = Files.createDirectories(daemon.dir().resolve("store-" + name));
    direct.createBuffer(BufferSpec.named(name, "file://" + store));
    losing =
        new Losing(
            daemon.dir().resolve(name + ".sock"), Path.of(daemon.socket().substring("unix://".length())));
    client = Client.dial(ClientOptions.defaults().withAddress("unix://" + losing.socket));
    buffer = client.buffer(name);
  }

  @AfterEach
  void close() throws Exception {
    losing.lose(null, null);
    client.close();
    losing.close();
    direct.destroyBuffer(name, true);
    direct.close();
  }

  private void write(Buffer b, String path, String text) throws IOException {
    try (Output out = b.create(path)) {
      out.write(ByteBuffer.wrap(text.getBytes()));
    }
  }

  private String read(String path) throws IOException {
    try (Input in = direct.buffer(name).open(path)) {
      byte[] all = new byte[(int) in.size()];
      in.read(0, all, 0, all.length);
      return new String(all);
    }
  }

  @Test
  void changesAreSentOnce() throws Exception {
    Map<String, Change> changes = new TreeMap<>();
    changes.put("MKDIR", b -> b.mkdir("d", 0755));
    changes.put("MKDIR all", b -> b.mkdirs("e/f", 0755));
    changes.put("MKNOD", b -> b.symlink("f1", "l"));
    changes.put("RENAME", b -> b.rename("f1", "g1"));
    changes.put("EXCHANGE", b -> b.exchange("f3", "f4"));
    changes.put("REMOVE", b -> b.remove("f2", false));
    changes.put("REMOVE all", b -> b.remove("f3", true));
    changes.put("SETATTR", b -> b.setAttributes("f4", new Attributes(0600, null, null, null)));
    changes.put("SET_XATTR", b -> b.setXattr("f4", "user.a", new byte[] {1}));
    changes.put("OPEN", b -> b.open("x", WriteOptions.createNew()).abort());
    for (int i = 1; i <= 4; i++) {
      write(direct.buffer(name), "f" + i, "text");
    }
    for (Map.Entry<String, Change> c : changes.entrySet()) {
      losing.lose(Type.valueOf("TYPE_" + c.getKey().split(" ")[0]), null);
      ForebayException e =
          assertThrows(ForebayException.class, () -> c.getValue().run(buffer), c.getKey());
      assertTrue(e.outcomeUnknown(), c.getKey() + ": " + e);
      assertEquals(Kind.UNAVAILABLE, e.kind(), c.getKey());
      assertTrue(e.getMessage().contains("outcome unknown"), e.getMessage());
      assertEquals(1, losing.requests(), c.getKey());
      losing.lose(null, null);
    }
  }

  /** Changes by others to a file after a commit whose answer is lost stay. */
  @Test
  void commitsAreNotRepeatedOnWhatOthersMade() throws Exception {
    losing.lose(Type.TYPE_COMMIT, b -> write(direct.buffer(name), "f", "theirs"));
    Output out = buffer.create("f");
    out.write(ByteBuffer.wrap("ours".getBytes()));
    ForebayException e = assertThrows(ForebayException.class, out::close);
    assertTrue(e.outcomeUnknown(), e.toString());
    assertEquals("theirs", read("f"));
  }

  /** A commit that landed, and whose answer is lost, has succeeded. */
  @Test
  void commitsThatLandedAreDone() throws Exception {
    losing.lose(Type.TYPE_COMMIT, null);
    write(buffer, "f", "ours");
    assertEquals("ours", read("f"));
  }

  /**
   * The daemon is killed again while uncommitted bytes are written again, and nothing is missing.
   */
  @Test
  void breaksWhileItResumes() throws Exception {
    byte[] want = new byte[5_000_009];
    new Random(1).nextBytes(want);
    for (int at = 1; ; at++) {
      assertTrue(at < 60, "the writer does not come to an end");
      String file = "again" + at;
      Output out = buffer.create(file);
      out.write(want, 0, 200_000);
      out.sync();
      out.write(want, 200_000, want.length - 200_000);
      losing.breakTwice(
          Type.TYPE_COMMIT,
          at,
          b -> {
            try {
              daemon.kill();
              daemon.start();
            } catch (InterruptedException e) {
              throw new IOException(e);
            }
          });
      out.close();
      boolean twice = losing.hasBroken();
      losing.lose(null, null);
      try (Input in = direct.buffer(name).open(file)) {
        byte[] got = new byte[want.length + 1];
        assertEquals(want.length, in.read(0, got, 0, got.length), "broken again at request " + at);
        assertEquals(-1, Arrays.mismatch(want, 0, want.length, got, 0, want.length));
      }
      if (!twice) {
        assertTrue(at > 3, "it broke only " + (at - 1) + " times twice");
        return;
      }
    }
  }

  @Test
  void refusalsAreNoUnknownOutcomes() throws Exception {
    ForebayException e =
        assertThrows(ForebayException.class, () -> buffer.remove("missing", false));
    assertEquals(Kind.NOT_FOUND, e.kind());
    assertFalse(e.outcomeUnknown());
  }

  @Test
  void everyRequestHasARepetition() {
    for (Type t : Type.values()) {
      int sets = 0;
      for (var s :
          java.util.List.of(
              Repetition.NOT_ASKED,
              Repetition.READING,
              Repetition.KEYED,
              Repetition.RESUMED,
              Repetition.ONCE)) {
        sets += s.contains(t) ? 1 : 0;
      }
      boolean request = t != Type.TYPE_UNSPECIFIED && t != Type.UNRECOGNIZED;
      assertEquals(request ? 1 : 0, sets, t.name());
    }
    assertFalse(Repetition.mayRepeat(Type.TYPE_TXN_BEGIN, Forebay.TxnBegin.getDefaultInstance()));
  }
}
