package forebay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** The promises of docs/transactions.md, against a real daemon. */
@Timeout(180)
class TxnTest {
  private static final AtomicInteger NAMES = new AtomicInteger();
  private final Daemon daemon = Daemon.get();
  private final String name = "txn" + NAMES.incrementAndGet();
  private Client client;
  private Buffer buffer;

  @BeforeEach
  void dial() throws Exception {
    daemon.start();
    Path store = Files.createDirectories(daemon.dir().resolve("store-" + name));
    client = Client.dial(ClientOptions.defaults().withName("test").withAddress(daemon.socket()));
    client.createBuffer(BufferSpec.named(name, "file://" + store));
    buffer = client.buffer(name);
  }

  @AfterEach
  void close() throws Exception {
    daemon.start();
    client.destroyBuffer(name, true);
    client.close();
  }

  private void write(String path) throws IOException {
    int slash = path.lastIndexOf('/');
    if (slash > 0) {
      buffer.mkdirs(path.substring(0, slash), 0755);
    }
    byte[] text = path.getBytes(StandardCharsets.UTF_8);
    try (Output out = buffer.create(path)) {
      out.write(text, 0, text.length);
    }
  }

  private void attempt(Txn t, String task, String attempt, String... files) throws IOException {
    for (String f : files) {
      write(t.path(task, attempt) + "/" + f);
    }
  }

  /** Returns the paths of all files below a directory, relative to it, by name. */
  private List<String> files(String dir) throws IOException {
    TreeSet<String> all = new TreeSet<>();
    for (Entry e : buffer.list(dir)) {
      if (e.directory()) {
        files(e.path()).forEach(f -> all.add(e.name() + "/" + f));
      } else {
        all.add(e.name());
      }
    }
    return List.copyOf(all);
  }

  private static void fails(Kind kind, Executable step) {
    ForebayException e = assertThrows(ForebayException.class, step);
    assertEquals(kind, e.kind(), e.getMessage());
  }

  private Txn begin(String key) throws IOException {
    return buffer.begin(new Txn.Spec("out", key, null));
  }

  @Test
  void aJobOfThreeTasks() throws Exception {
    write("out/p=1/old");
    write("out/kept");
    Txn t = begin("job 1");
    assertEquals(t.id(), begin("job 1").id());
    fails(Kind.EXISTS, () -> buffer.begin(new Txn.Spec("out/p=1", "job 1", null)));
    attempt(t, "t1", "a", "p=1/f1", "p=2/f1");
    attempt(t, "t1", "b", "p=1/f1", "p=3/zombie");
    attempt(t, "t2", "a", "p=2/f2", "g");
    attempt(t, "t3", "never adopted", "p=9/f");
    assertEquals("a", t.adopt("t1", "a"));
    assertEquals("a", t.adopt("t1", "b"));
    assertEquals("a", t.adopt("t1", "a"));
    assertEquals("a", t.adopt("t2", "a"));
    assertEquals(List.of("g", "p=1/f1", "p=2/f1", "p=2/f2"), files(t.output()));

    // Nothing is visible yet, and a zombie is fenced.
    assertEquals(List.of("kept", "p=1/old"), files("out"));
    assertEquals(List.of("out"), buffer.list("").stream().map(Entry::name).toList());
    fails(Kind.CANCELLED, () -> buffer.mkdirs(t.path("t1", "c"), 0755));
    fails(Kind.CANCELLED, () -> buffer.remove(t.path("t1", "a"), true));
    Txn.Info open = t.info();
    assertEquals(Txn.State.OPEN, open.state());
    assertEquals(2, open.tasks());
    assertEquals("job 1", open.key());
    assertEquals("out", open.destination());
    assertEquals(Duration.ofMinutes(10), open.lease());
    assertNull(open.ended());

    assertTrue(t.commit(List.of("p=1"), false).state().isDecided());
    List<String> output = List.of("g", "kept", "p=1/f1", "p=2/f1", "p=2/f2");
    assertEquals(output, files("out"));
    Txn.Info over = t.commit(List.of(), true);
    assertEquals(Txn.State.FOLDED, over.state());
    assertEquals(List.of("p=1"), over.replace());
    assertNotNull(over.ended());
    assertEquals(output, files("out"));
    fails(Kind.BUSY, t::abort);
    fails(Kind.BUSY, () -> t.adopt("t3", "never adopted"));
    // The transaction is over or, once its hidden tree is removed, not there.
    assertThrows(ForebayException.class, () -> buffer.mkdirs(t.path("t3", "again"), 0755));
    assertEquals(Txn.State.FOLDED, begin("job 1").info().state());
  }

  @Test
  void abortingOneTouchesNoOther() throws Exception {
    Txn x = begin("");
    Txn y = begin("");
    assertNotEquals(x.id(), y.id());
    attempt(x, "t", "0", "x");
    attempt(y, "t", "0", "y");
    x.adopt("t", "0");
    y.adopt("t", "0");
    assertEquals(Txn.State.ABORTED, x.abort().state());
    assertEquals(Txn.State.ABORTED, x.abort().state());
    fails(Kind.CANCELLED, () -> x.commit(List.of(), false));
    fails(Kind.CANCELLED, x::renew);
    fails(Kind.CANCELLED, () -> x.adopt("u", "0"));
    y.commit(List.of(), true);
    assertEquals(List.of("y"), files("out"));
    List<Txn.Info> all = buffer.txns();
    assertEquals(List.of(y.id(), x.id()), all.stream().map(Txn.Info::id).toList());
  }

  @Test
  void whatIsRefused() throws Exception {
    fails(Kind.INVALID, () -> buffer.begin(new Txn.Spec("/", "", null)));
    fails(Kind.NOT_FOUND, () -> buffer.txn("00000000000000ff").info());
    Txn t = begin("");
    buffer.remove("out", true);
    fails(Kind.NOT_FOUND, () -> t.commit(List.of(), false));
  }

  /** A daemon that is killed between two steps has lost nothing, and the client goes on. */
  @Test
  void surviveTheDaemon() throws Exception {
    Txn t = begin("job");
    attempt(t, "t", "0", "p=1/f");
    t.adopt("t", "0");
    daemon.kill();
    daemon.start();
    assertEquals("0", t.adopt("t", "0"));
    t.commit(List.of(), false);
    daemon.kill();
    daemon.start();
    assertEquals(List.of("p=1/f"), files("out"));
    assertEquals(Txn.State.FOLDED, t.commit(List.of(), true).state());
    assertEquals(List.of("p=1/f"), files("out"));
  }

  @Test
  void aLease() throws Exception {
    Txn t = buffer.begin(new Txn.Spec("out", "", Duration.ofHours(1)));
    assertEquals(Duration.ofHours(1), t.info().lease());
    assertEquals(Txn.State.OPEN, t.renew().state());
    fails(Kind.INVALID, () -> buffer.begin(new Txn.Spec("out", "", Duration.ofNanos(1))));
  }
}
