package forebay.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The operations of a client, against a real daemon. */
@Timeout(120)
class ClientTest {
  private static final AtomicInteger NAMES = new AtomicInteger();
  private static final Pattern ON_DISK =
      Pattern.compile("\"disk\":\\s*\\{[^}]*\"live\":\\s*(\\d+)");
  private final Daemon daemon = Daemon.get();
  private final String name = "java" + NAMES.incrementAndGet();
  private Client client;
  private Buffer buffer;

  @BeforeEach
  void dial() throws Exception {
    daemon.start();
    client = Client.dial(options(false));
    client.createBuffer(BufferSpec.named(name, "file://" + store()));
    buffer = client.buffer(name);
    assertEquals(!Daemon.engine().equals("buckets"), daemon.hasLog(name));
  }

  @AfterEach
  void close() throws Exception {
    daemon.start();
    client.destroyBuffer(name, true);
    client.close();
  }

  private Path store() throws IOException {
    return Files.createDirectories(daemon.dir().resolve("store-" + name));
  }

  private ClientOptions options(boolean far) {
    ClientOptions o = ClientOptions.defaults().withName("test");
    return far
        ? o.withAddress(daemon.tcp()).withKeyFile(daemon.keyFile())
        : o.withAddress(daemon.socket());
  }

  private static byte[] random(int n, long seed) {
    byte[] b = new byte[n];
    new Random(seed).nextBytes(b);
    return b;
  }

  private byte[] readAll(Buffer b, String path) throws IOException {
    try (Input in = b.open(path)) {
      byte[] all = new byte[(int) in.size()];
      assertEquals(all.length == 0 ? 0 : all.length, in.read(0, all, 0, all.length));
      assertEquals(-1, in.read(all.length, new byte[1], 0, 1));
      return all;
    }
  }

  /** Random pieces, in and out of order, over each other and with holes, synced now and then. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void randomWritesAndReads(boolean far) throws Exception {
    try (Client c = Client.dial(options(far))) {
      assertEquals(!far, c.server().mapped());
      Buffer b = c.buffer(name);
      for (int seed = 0; seed < 6; seed++) {
        Random r = new Random(seed);
        int span = new int[] {300, 30_000, 3 << 20, 9 << 20, 40 << 20, 1 << 20}[seed];
        byte[] want = new byte[span];
        int size = 0;
        String path = "random/" + far + seed;
        try {
          b.mkdir("random", 0755);
        } catch (ForebayException e) {
          assertEquals(Kind.EXISTS, e.kind());
        }
        try (Output out = b.create(path)) {
          for (int i = 0; i < 30; i++) {
            int n = r.nextInt(Math.min(span, 1 << r.nextInt(24)) + 1);
            int at = r.nextInt(span - n + 1);
            byte[] p = random(n, r.nextLong());
            ByteBuffer source = ByteBuffer.wrap(p);
            if (r.nextBoolean()) {
              source = ByteBuffer.allocateDirect(n).put(p).flip();
            }
            out.write(at, source);
            assertFalse(source.hasRemaining());
            System.arraycopy(p, 0, want, at, n);
            size = n == 0 ? size : Math.max(size, at + n);
            if (r.nextInt(8) == 0) {
              out.sync();
              assertEquals(size, b.stat(path).size());
            }
          }
          assertEquals(size, out.size());
        }
        Entry e = b.stat(path);
        assertEquals(size, e.size());
        assertEquals(Crc64Nvme.of(want, 0, size), e.checksum());
        try (Input in = b.open(path)) {
          for (int i = 0; i < 40; i++) {
            int n = r.nextInt(Math.min(span, 1 << r.nextInt(22)) + 1);
            int at = r.nextInt(span + 100);
            ByteBuffer got = r.nextBoolean() ? ByteBuffer.allocate(n) : ByteBuffer.allocateDirect(n);
            int k = in.read(at, got);
            assertEquals(n == 0 ? 0 : at >= size ? -1 : Math.min(n, size - at), k);
            for (int x = 0; x < k; x++) {
              assertEquals(want[at + x], got.get(x), "byte " + (at + x));
            }
          }
          int at = 0;
          try (Mapping m = in.map(0, size)) {
            m.verify();
            for (ByteBuffer part : m.buffers()) {
              while (part.hasRemaining()) {
                assertEquals(want[at++], part.get());
              }
            }
          }
          assertEquals(size, at);
        }
      }
    }
  }

  /** Fills a daemon's memory several times over after a mapped file was closed. */
  @Test
  void mappingOutlivesItsFile() throws Exception {
    Daemon small = new Daemon("--memory", "64MiB");
    try (Client c = Client.dial(ClientOptions.defaults().withAddress(small.socket()))) {
      Path dir = Files.createDirectories(small.dir().resolve("store"));
      c.createBuffer(BufferSpec.named("mapped", "file://" + dir));
      Buffer b = c.buffer("mapped");
      byte[] want = random(8 << 20, 1);
      try (Output out = b.create("f")) {
        out.write(want, 0, want.length);
      }
      b.drain();
      Input in = b.open("f");
      Mapping m = in.map(0, want.length);
      assertEquals(100, in.read(1 << 20, new byte[100], 0, 100)); // of a window in use
      in.close();
      for (int i = 0; i < 10; i++) {
        try (Output out = b.create("other" + i)) {
          out.write(random(want.length, 2 + i), 0, want.length);
        }
        b.drain();
      }
      ByteBuffer got = ByteBuffer.allocate(want.length);
      m.buffers().forEach(part -> got.put(part.duplicate()));
      assertArrayEquals(want, got.array());
      m.verify();
      m.close();
      // Nothing is pinned any more, so a file as large as all memory but one region's rest fits.
      byte[] large = random(40 << 20, 99);
      try (Output out = b.create("large")) {
        out.write(large, 0, large.length);
      }
      assertArrayEquals(large, readAll(b, "large"));
    } finally {
      small.kill();
    }
  }

  @Test
  void goAndJavaReadEachOther() throws Exception {
    byte[] data = random(5_000_001, 1);
    Path file = daemon.dir().resolve("from-go");
    Files.write(file, data);
    daemon.bbctl("put", file.toString(), "bb://" + name + "/from-go");
    assertArrayEquals(data, readAll(buffer, "from-go"));

    try (Output out = buffer.create("from-java")) {
      for (int at = 0, n; at < data.length; at += n) {
        n = Math.min(70_001, data.length - at);
        out.write(data, at, n);
      }
    }
    Path back = daemon.dir().resolve("from-java");
    daemon.bbctl("get", "bb://" + name + "/from-java", back.toString());
    assertArrayEquals(data, Files.readAllBytes(back));
    assertEquals(buffer.stat("from-go").checksum(), buffer.stat("from-java").checksum());
    assertEquals(Crc64Nvme.of(data, 0, data.length), buffer.stat("from-java").checksum());

    DrainReport report = buffer.drain("from-java");
    assertTrue(report.isComplete(), report.toString());
    assertEquals(Entry.State.CLEAN, buffer.stat("from-java").state());
    report = buffer.drain();
    assertTrue(report.isComplete(), report.toString());
    assertArrayEquals(data, Files.readAllBytes(store().resolve("from-java")));
    assertEquals(Entry.State.CLEAN, buffer.stat("from-java").state());
  }

  /** A buffer on the store of another one is refused, unless the store is shared. */
  @Test
  void sharesStore() throws Exception {
    BufferSpec spec = BufferSpec.named(name + "-shares", "file://" + store());
    kind(Kind.EXISTS, () -> client.createBuffer(spec));
    client.createBuffer(spec.withShared(true));
    client.destroyBuffer(spec.name(), false);
  }

  /**
   * Of a series of steps the store gets the multiples and the newest. The others are superseded.
   */
  @Test
  void flushRules() throws Exception {
    Path store = Files.createDirectories(daemon.dir().resolve("ruled-" + name));
    String ruled = name + "-ruled";
    BufferSpec spec = BufferSpec.named(ruled, "file://" + store);
    kind(Kind.INVALID, () -> client.createBuffer(spec.withFlush(List.of("step-*/=often"))));
    List<String> rules = List.of("step-*/=every 5", "*/=last at end of job");
    assertEquals(rules, client.createBuffer(spec.withFlush(rules)).flush());
    try {
      Buffer b = client.buffer(ruled);
      for (int step = 4; step <= 7; step++) {
        b.mkdirs("step-" + step, 0755);
        for (String file : List.of("part", ".metadata")) {
          try (Output out = b.create("step-" + step + "/" + file)) {
            out.write(ByteBuffer.wrap(random(1000, step)));
          }
        }
      }
      assertEquals(Entry.State.SUPERSEDED, b.stat("step-6/part").state());
      assertEquals(Entry.State.DIRTY, b.stat("step-7/part").state());
      DrainReport report = b.drain();
      assertTrue(report.isComplete(), report.toString());
      assertEquals(List.of("step-4", "step-6"), report.superseded());
      try (var steps = Files.list(store)) {
        assertEquals(
            List.of("step-5", "step-7"),
            steps.map(p -> p.getFileName().toString()).sorted().toList());
      }
    } finally {
      client.destroyBuffer(ruled, false);
    }
  }

  /**
   * In a buffer that keeps objects of others, both files stay, and the drain names the conflict.
   */
  @Test
  void keepsExisting() throws Exception {
    Path store = Files.createDirectories(daemon.dir().resolve("keeps-" + name));
    Files.writeString(store.resolve("results.csv"), "theirs");
    String keeping = name + "-keeps";
    BufferSpec spec = BufferSpec.named(keeping, "file://" + store);
    kind(Kind.EXISTS, () -> client.createBuffer(spec.withExisting("refuse")));
    kind(Kind.INVALID, () -> client.createBuffer(spec.withExisting("perhaps")));
    assertEquals("keep", client.createBuffer(spec).existing());
    try {
      Buffer b = client.buffer(keeping);
      for (String file : List.of("results.csv", "other.csv")) {
        try (Output out = b.create(file)) {
          out.write(ByteBuffer.wrap("ours".getBytes(StandardCharsets.UTF_8)));
        }
      }
      DrainReport report = b.drain();
      assertFalse(report.isComplete(), report.toString());
      assertEquals(1, report.failed().size(), report.toString());
      String failed = report.failed().get(0);
      assertTrue(failed.startsWith("results.csv: ") && failed.contains("conflict"), failed);
      assertEquals("theirs", Files.readString(store.resolve("results.csv")));
      assertEquals("ours", Files.readString(store.resolve("other.csv")));
      assertEquals(Entry.State.DIRTY, b.stat("results.csv").state());
      b.rename("results.csv", "results-2.csv", false);
      report = b.drain();
      assertTrue(report.isComplete(), report.toString());
      assertEquals("theirs", Files.readString(store.resolve("results.csv")));
      assertEquals("ours", Files.readString(store.resolve("results-2.csv")));

      try (Output out = b.create("results.csv")) {
        out.write(ByteBuffer.wrap("ours again".getBytes(StandardCharsets.UTF_8)));
      }
      assertEquals(List.of("results.csv"), b.drain().conflicts());
      report = b.overwrite("results.csv");
      assertTrue(report.isComplete(), report.toString());
      assertEquals(List.of(), report.conflicts());
      assertEquals("ours again", Files.readString(store.resolve("results.csv")));
    } finally {
      client.destroyBuffer(keeping, true);
    }
  }

  @Test
  void namespace() throws Exception {
    buffer.mkdirs("a/b/c", 0750);
    assertTrue(buffer.stat("a/b").directory());
    assertEquals(0750, buffer.stat("/a//b/c/").mode());
    for (int i = 0; i < 5; i++) {
      buffer.create("a/b/f" + i).close();
    }
    List<String> names = new ArrayList<>();
    for (Entry e : buffer.list("a/b")) {
      names.add(e.path());
    }
    assertEquals(List.of("a/b/c", "a/b/f0", "a/b/f1", "a/b/f2", "a/b/f3", "a/b/f4"), names);
    Buffer.Page page = buffer.list("a/b", "c", 2);
    assertEquals(2, page.entries().size());
    assertTrue(page.more());

    buffer.rename("a/b", "a/d");
    assertEquals(0, buffer.stat("a/d/f0").size());
    buffer.setAttributes("a/d/f0", new Attributes(0600, null, null, 5_000_000_000L));
    assertEquals(0600, buffer.stat("a/d/f0").mode());
    assertEquals(5_000_000_000L, buffer.stat("a/d/f0").modified());
    buffer.remove("a", true);
    kind(Kind.NOT_FOUND, () -> buffer.stat("a"));
    assertTrue(client.buffers().stream().anyMatch(b -> b.name().equals(name)));
  }

  @Test
  void exchange() throws Exception {
    buffer.mkdirs("d", 0755);
    buffer.create("d/f").close();
    buffer.create("g").close();
    long file = buffer.stat("g").file();
    buffer.exchange("d/f", "g");
    assertEquals(file, buffer.stat("d/f").file());
    buffer.exchange("d", "g");
    assertEquals(file, buffer.stat("g/f").file());
    assertTrue(!buffer.stat("d").directory());
    kind(Kind.NOT_FOUND, () -> buffer.exchange("d", "none"));
    kind(Kind.INVALID, () -> buffer.exchange("g", "g/f"));
  }

  @Test
  void extendedAttributes() throws Exception {
    buffer.create("f").close();
    buffer.setXattr("f", "user.ü", new byte[] {0, -1});
    buffer.setXattr("f", "user.a", new byte[0]);
    buffer.rename("f", "g");
    assertEquals(Set.of("user.a", "user.ü"), buffer.xattrs("g").keySet());
    assertArrayEquals(new byte[] {0, -1}, buffer.xattrs("g").get("user.ü"));
    buffer.removeXattr("g", "user.a");
    kind(Kind.NOT_FOUND, () -> buffer.removeXattr("g", "user.a"));
    kind(Kind.UNSUPPORTED, () -> buffer.setXattr("g", "trusted.a", new byte[0]));
    kind(Kind.NO_SPACE, () -> buffer.setXattr("g", "user.a", new byte[10_000]));
    assertEquals(1, buffer.xattrs("g").size());
  }

  @Test
  void symbolicLinks() throws Exception {
    buffer.symlink("nowhere/ü", "l");
    assertEquals("nowhere/ü", buffer.readlink("l"));
    Entry e = buffer.stat("l");
    assertTrue(e.symlink());
    assertEquals("nowhere/ü", e.target());
    assertEquals(10, e.size());
    kind(Kind.UNSUPPORTED, () -> buffer.open("l"));
    kind(Kind.EXISTS, () -> buffer.symlink("x", "l"));
    kind(Kind.INVALID, () -> buffer.symlink("", "empty"));
    buffer.create("f").close();
    assertEquals("", buffer.stat("f").target());
    kind(Kind.INVALID, () -> buffer.readlink("f"));
    kind(Kind.NOT_FOUND, () -> buffer.readlink("missing"));
    buffer.rename("l", "moved");
    assertEquals("nowhere/ü", buffer.list("").get(1).target());
  }

  private interface Action {
    void run() throws IOException;
  }

  private static ForebayException kind(Kind want, Action a) {
    ForebayException e = assertThrows(ForebayException.class, a::run);
    assertEquals(want, e.kind(), e.getMessage());
    return e;
  }

  @Test
  void kindsOfErrors() throws Exception {
    ForebayException e = kind(Kind.NOT_FOUND, () -> buffer.open("none"));
    assertEquals("open", e.op());
    assertEquals("bb://" + name + "/none", e.path());
    kind(Kind.NOT_FOUND, () -> buffer.open("none/at/all", WriteOptions.replace()));
    buffer.create("file").close();
    buffer.mkdir("dir", 0755);
    buffer.create("dir/x").close();
    kind(Kind.EXISTS, () -> buffer.open("file", WriteOptions.createNew()));
    kind(Kind.EXISTS, () -> buffer.mkdir("dir", 0755));
    kind(Kind.EXISTS, () -> buffer.rename("file", "dir/x", false));
    kind(Kind.NOT_DIRECTORY, () -> buffer.stat("file/below"));
    kind(Kind.IS_DIRECTORY, () -> buffer.open("dir"));
    kind(Kind.IS_DIRECTORY, () -> buffer.create("dir").close());
    kind(Kind.NOT_EMPTY, () -> buffer.remove("dir", false));
    kind(Kind.INVALID, () -> buffer.stat("a/../b"));
    kind(Kind.NOT_FOUND, () -> client.buffer("no-such-buffer").stat(""));
    kind(Kind.EXISTS, () -> client.createBuffer(BufferSpec.named(name, "")));
    ForebayException none =
        kind(
            Kind.UNAVAILABLE,
            () -> Client.dial(ClientOptions.defaults().withAddress("unix:///nowhere/bbd.sock")));
    assertNotEquals("", none.remedy());
    ForebayException key =
        kind(
            Kind.PERMISSION,
            () -> Client.dial(ClientOptions.defaults().withAddress(daemon.tcp())));
    assertNotEquals("", key.remedy());

    Output gone = buffer.create("gone");
    gone.write(new byte[10], 0, 10);
    gone.sync();
    buffer.remove("gone", false);
    gone.write(new byte[10], 0, 10);
    kind(Kind.NOT_FOUND, gone::close);
    Output closed = buffer.create("closed");
    closed.close();
    closed.close();
    kind(Kind.INVALID, () -> closed.write(new byte[1], 0, 1));
  }

  @Test
  void tokenLetsIntoOneBuffer() throws Exception {
    Path file = daemon.dir().resolve("token-" + name);
    daemon.bbctl("token", name, "--lifetime", "1h", "-o", file.toString());
    Token made = buffer.token(Duration.ofHours(2));
    ClientOptions o = ClientOptions.defaults().withAddress(daemon.tcp());
    for (ClientOptions by : List.of(o.withTokenFile(file), o.withToken(made))) {
      try (Client c = Client.dial(by)) {
        try (Output out = c.buffer(name).create("by-token")) {
          out.write(new byte[100_000], 0, 100_000);
        }
        assertEquals(100_000, readAll(c.buffer(name), "by-token").length);
        kind(Kind.PERMISSION, () -> c.buffer("other").stat("x"));
        kind(Kind.PERMISSION, () -> c.buffer(name).token(Duration.ofHours(1)));
        assertEquals(name, c.token().buffer());
      }
    }
    assertEquals("token of bb://" + name + " until " + made.expires(), made.toString());
    long left = Duration.between(Instant.now(), made.expires()).toMinutes();
    assertTrue(left > 30 && left <= 120, left + " minutes are left");
    byte[] secret = made.secret();
    secret[0]++;
    Token forged = new Token(made.claims(), secret);
    kind(Kind.PERMISSION, () -> Client.dial(o.withToken(forged)));
    kind(Kind.INVALID, () -> Token.parse("forebay-token-1.AAAA"));
    kind(Kind.INVALID, () -> buffer.token(Duration.ofDays(31)));
  }

  @Test
  void tls() throws Exception {
    Path dir = daemon.dir().resolve("secrets");
    daemon.bbctl("cluster", "init", dir.toString());
    Path ca = dir.resolve("ca.pem");
    Daemon secure =
        new Daemon(
            "--tls-ca", ca.toString(),
            "--tls-cert", dir.resolve("daemon.pem").toString(),
            "--tls-key", dir.resolve("daemon.key").toString());
    secure.bbctl("buffer", "create", "b");
    ClientOptions o = ClientOptions.defaults().withAddress(secure.tcp());
    Path cert = dir.resolve("client.pem");
    Path key = dir.resolve("client.key");
    byte[] data = random(6_000_000, 1);
    try (Client c = Client.dial(o.withTls(new ClientOptions.TlsFiles(ca, cert, key)))) {
      try (Output out = c.buffer("b").create("f")) {
        out.write(data, 0, data.length);
      }
      assertArrayEquals(data, readAll(c.buffer("b"), "f"));
    }
    ClientOptions.TlsFiles trustOnly = new ClientOptions.TlsFiles(ca, null, null);
    kind(Kind.PERMISSION, () -> Client.dial(o.withTls(trustOnly)));
    // Nobody is trusted whom another authority signed.
    Path other = daemon.dir().resolve("others");
    daemon.bbctl("cluster", "init", other.toString());
    ClientOptions.TlsFiles foreign = new ClientOptions.TlsFiles(other.resolve("ca.pem"), cert, key);
    kind(Kind.PERMISSION, () -> Client.dial(o.withTls(foreign)));
    ClientOptions byKey = o.withTls(trustOnly).withKeyFile(secure.keyFile());
    if (Runtime.version().feature() < 25) {
      kind(Kind.UNSUPPORTED, () -> Client.dial(byKey));
    } else {
      Client.dial(byKey).close();
    }
  }

  @Test
  void appendAndAbort() throws Exception {
    try (Output out = buffer.create("log")) {
      out.write(new byte[] {1, 2, 3}, 0, 3);
    }
    try (Output out = buffer.open("log", WriteOptions.appending())) {
      assertEquals(3, out.position());
      out.write(new byte[] {4}, 0, 1);
    }
    assertArrayEquals(new byte[] {1, 2, 3, 4}, readAll(buffer, "log"));
    Output out = buffer.create("log");
    out.write(random(3 << 20, 1), 0, 3 << 20);
    out.abort();
    assertArrayEquals(new byte[] {1, 2, 3, 4}, readAll(buffer, "log"));
    kind(Kind.NOT_FOUND, () -> buffer.open("missing", WriteOptions.appending()));
  }

  /**
   * A writer that was declared gone writes nothing any more, whether or not the daemon was killed
   * meanwhile.
   */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void recoveredFilesAreFenced(boolean kill) throws Exception {
    try (Output zombie = buffer.create("wal")) {
      zombie.write(new byte[] {1, 2, 3}, 0, 3);
      zombie.sync();
      zombie.write(new byte[] {4}, 0, 1);
      assertEquals(Entry.State.OPEN, buffer.stat("wal").state());
      buffer.recover("wal");
      assertNotEquals(Entry.State.OPEN, buffer.stat("wal").state());
      if (kill) {
        daemon.kill();
        daemon.start();
      }
      assertThrows(ForebayException.class, zombie::sync);
      assertThrows(ForebayException.class, zombie::close);
    }
    assertArrayEquals(new byte[] {1, 2, 3}, readAll(buffer, "wal"));
    kind(Kind.NOT_FOUND, () -> buffer.recover("missing"));
  }

  /** One stream each way for many threads. The bytes of one call, written or read, are together. */
  @Test
  void streamsAreSharedByThreads() throws Exception {
    int threads = 4;
    int records = 300;
    int length = 5000;
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      List<Future<?>> all = new ArrayList<>();
      try (Output out = buffer.create("threads")) {
        for (int t = 0; t < threads; t++) {
          byte[] record = new byte[length];
          Arrays.fill(record, (byte) t);
          all.add(
              pool.submit(
                  () -> {
                    for (int i = 0; i < records; i++) {
                      out.write(record, 0, length);
                      if (i % 100 == 0) {
                        out.sync();
                      }
                    }
                    return null;
                  }));
        }
        for (Future<?> f : all) {
          f.get(100, TimeUnit.SECONDS);
        }
        assertEquals((long) threads * records * length, out.size());
      }
      all.clear();
      try (Input in = buffer.open("threads")) {
        AtomicInteger next = new AtomicInteger();
        int[] seen = new int[threads]; // guards itself
        for (int t = 0; t < threads; t++) {
          all.add(
              pool.submit(
                  () -> {
                    byte[] record = new byte[length];
                    byte[] want = new byte[length];
                    for (int i; (i = next.getAndIncrement()) < threads * records; ) {
                      assertEquals(length, in.read((long) i * length, record, 0, length));
                      Arrays.fill(want, record[0]);
                      assertArrayEquals(want, record);
                      synchronized (seen) {
                        seen[record[0]]++;
                      }
                    }
                    return null;
                  }));
        }
        for (Future<?> f : all) {
          f.get(100, TimeUnit.SECONDS);
        }
        for (int n : seen) {
          assertEquals(records, n);
        }
      }
    } finally {
      pool.shutdownNow();
    }
  }

  /** Several writers of one file, each with stripes of its own. */
  @Test
  void concurrentWritersOfOneFile() throws Exception {
    int writers = 4;
    int stripe = 300_001;
    int rounds = 8;
    byte[] want = random(writers * stripe * rounds, 3);
    ExecutorService pool = Executors.newFixedThreadPool(writers);
    try {
      List<Future<?>> all = new ArrayList<>();
      // One keeps it open, so that the others join whenever they come.
      Output first = buffer.open("shared", WriteOptions.update());
      try (first) {
        for (int w = 0; w < writers; w++) {
          int mine = w;
          all.add(
              pool.submit(
                  () -> {
                    try (Output out = buffer.open("shared", WriteOptions.update())) {
                      for (int i = 0; i < rounds; i++) {
                        int at = (i * writers + mine) * stripe;
                        out.write(at, ByteBuffer.wrap(want, at, stripe));
                        if (i % 3 == mine % 3) {
                          out.sync();
                        }
                      }
                    }
                    return null;
                  }));
        }
        for (Future<?> f : all) {
          f.get(100, TimeUnit.SECONDS);
        }
      }
    } finally {
      pool.shutdownNow();
    }
    assertArrayEquals(want, readAll(buffer, "shared"));
  }

  /** Killed and started again in the middle, nothing that was written is missing or twice. */
  @Test
  void survivesKills() throws Exception {
    byte[] want = random(48 << 20, 5);
    byte[] old = random(6 << 20, 6);
    try (Output out = buffer.create("old")) {
      out.write(old, 0, old.length);
    }
    try (Input in = buffer.open("old");
        Output small = buffer.create("small");
        Output out = buffer.create("big")) {
      byte[] got = new byte[old.length];
      small.write(want, 0, 1000);
      int step = 700_001;
      int kills = 0;
      for (int at = 0, i = 0, n; at < want.length; at += n, i++) {
        n = Math.min(step, want.length - at);
        out.write(want, at, n);
        if (i % 9 == 8) {
          out.sync();
        }
        if (i % 20 == 13) {
          kills++;
          daemon.kill();
          daemon.start();
          int from = kills * 1_000_000;
          assertEquals(n, in.read(from, got, from, n));
          assertEquals(0, Arrays.compare(old, from, from + n, got, from, from + n));
        }
      }
      assertTrue(kills > 1);
    }
    assertArrayEquals(want, readAll(buffer, "big"));
    assertArrayEquals(old, readAll(buffer, "old"));
    assertEquals(1000, buffer.stat("small").size());
  }

  /** A close whose answer is lost is found to have landed, or is done again. */
  @Test
  void closesWhileItIsKilled() throws Exception {
    for (int i = 0; i < 4; i++) {
      byte[] want = random(2_000_000 + i, i);
      Output out = buffer.create("closing" + i);
      out.write(want, 0, want.length);
      int delay = i;
      Thread killer =
          new Thread(
              () -> {
                try {
                  Thread.sleep(delay);
                  daemon.kill();
                  daemon.start();
                } catch (IOException | InterruptedException e) {
                  throw new IllegalStateException(e);
                }
              });
      killer.start();
      out.close();
      killer.join();
      assertArrayEquals(want, readAll(buffer, "closing" + i));
    }
  }

  /** Files that a buffer's rules place on disk go there, and no others do. */
  @Test
  void goesToItsTier() throws Exception {
    daemon.bbctl("buffer", "create", name + "tiers", "--tier", "cold*=disk");
    try {
      Buffer tiers = client.buffer(name + "tiers");
      byte[] hot = random(20 << 20, 1);
      byte[] cold = random(20 << 20, 2);
      try (Output h = tiers.create("hot");
          Output c = tiers.create("cold")) {
        for (int at = 0; at < hot.length; at += 1 << 20) {
          h.write(hot, at, 1 << 20);
          c.write(cold, at, 1 << 20);
        }
      }
      for (long end = System.nanoTime() + 30_000_000_000L; onDisk() < 8 << 20; Thread.sleep(50)) {
        assertTrue(System.nanoTime() < end, "only " + onDisk() + " bytes came to the disk tier");
      }
      assertTrue(onDisk() <= cold.length, "more is on disk than belongs there: " + onDisk());
      assertArrayEquals(hot, readAll(tiers, "hot"));
      assertArrayEquals(cold, readAll(tiers, "cold"));
    } finally {
      client.destroyBuffer(name + "tiers", true);
    }
  }

  private long onDisk() throws Exception {
    Matcher m = ON_DISK.matcher(daemon.bbctl("status", "--json"));
    assertTrue(m.find());
    return Long.parseLong(m.group(1));
  }

  /** An interrupted thread stops waiting. The session that others use lives on. */
  @Test
  void interruptsHarmNobodyElse() throws Exception {
    try (Output other = buffer.create("other")) {
      other.write(new byte[100], 0, 100);
      Thread.currentThread().interrupt();
      assertThrows(IOException.class, () -> buffer.stat(""));
      assertTrue(Thread.interrupted());
      other.sync();
    }
    assertEquals(100, buffer.stat("other").size());
  }

  private static int count(String dir) throws IOException {
    try (var files = Files.list(Path.of("/proc/self", dir))) {
      return (int) files.count();
    }
  }

  private static long mappings() throws IOException {
    return Files.readAllLines(Path.of("/proc/self/maps")).stream()
        .filter(l -> l.contains("/dev/shm"))
        .count();
  }

  @Test
  void leavesNothingBehind() throws Exception {
    long maps = -1;
    int fds = -1;
    int threads = -1;
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < 5; i++) {
        try (Client c = Client.dial(options(false))) {
          Output left = c.buffer(name).create("left" + i);
          left.write(random(200_000, i), 0, 200_000);
          left.sync();
          Input in = c.buffer(name).open("left" + i);
          assertEquals(10, in.read(5, new byte[10], 0, 10));
          in.map(0, 1000).close();
          in.close();
          if (i % 2 == 0) {
            left.close();
          }
        }
      }
      if (round == 0) {
        maps = mappings();
        fds = count("fd");
        threads = sessions();
      }
    }
    assertEquals(maps, mappings());
    assertTrue(count("fd") <= fds + 1, "file descriptors: " + fds + ", then " + count("fd"));
    assertEquals(threads, sessions());
  }

  private static int sessions() {
    return (int)
        Thread.getAllStackTraces().keySet().stream()
            .filter(t -> t.getName().equals("forebay-session"))
            .count();
  }
}
