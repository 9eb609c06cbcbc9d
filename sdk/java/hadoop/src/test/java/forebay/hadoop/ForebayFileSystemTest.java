package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.URI;
import java.nio.ByteBuffer;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RawPathHandle;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.io.ElasticByteBufferPool;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.DtUtilShell;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests that the contract suites lack. */
@Timeout(120)
class ForebayFileSystemTest {
  private FileSystem fs;

  @BeforeEach
  void open() throws Exception {
    Daemon.get().start();
    fs = TestBuffer.fileSystem("own");
  }

  private static byte[] random(int n) {
    byte[] b = new byte[n];
    new Random(n).nextBytes(b);
    return b;
  }

  private byte[] readAll(Path p) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    try (FSDataInputStream in = fs.open(p)) {
      IOUtils.copyBytes(in, all, 64 << 10);
    }
    return all.toByteArray();
  }

  @Test
  void isFoundByItsSchemeAlone() throws Exception {
    assertEquals(ForebayFileSystem.class, FileSystem.getFileSystemClass("bb", new Configuration()));
    assertEquals(
        ForebayFs.class.getName(), new Configuration().get("fs.AbstractFileSystem.bb.impl"));
  }

  /** The shell that users have, from and to the local file system. */
  @Test
  void shell() throws Exception {
    java.nio.file.Path local = Daemon.get().dir().resolve("shell-in");
    java.nio.file.Path back = Daemon.get().dir().resolve("shell-out");
    byte[] data = random(3_000_000);
    java.nio.file.Files.write(local, data);
    FsShell shell = new FsShell(TestBuffer.conf("own"));
    assertEquals(0, shell.run(new String[] {"-mkdir", "-p", "bb://own/shell/a"}));
    assertEquals(0, shell.run(new String[] {"-put", local.toString(), "bb://own/shell/a/f"}));
    assertEquals(0, shell.run(new String[] {"-mv", "bb://own/shell/a", "bb://own/shell/b"}));
    assertEquals(0, shell.run(new String[] {"-test", "-f", "bb://own/shell/b/f"}));
    assertEquals(0, shell.run(new String[] {"-get", "bb://own/shell/b/f", back.toString()}));
    assertArrayEquals(data, java.nio.file.Files.readAllBytes(back));
  }

  @Test
  void blocksAreWhereTheDaemonIs() throws Exception {
    Path p = new Path("/blocks");
    Configuration conf = TestBuffer.conf("own");
    conf.setLong(ForebayFileSystem.BLOCK_SIZE, 1 << 20);
    try (FileSystem small = FileSystem.newInstance(TestBuffer.uri("own"), conf)) {
      try (FSDataOutputStream out = small.create(p)) {
        out.write(random((5 << 20) / 2));
      }
      FileStatus s = small.getFileStatus(p);
      BlockLocation[] all = small.getFileBlockLocations(s, 0, s.getLen());
      assertEquals(3, all.length);
      assertEquals(1 << 19, all[2].getLength());
      String[] here = {InetAddress.getLocalHost().getHostName()};
      assertArrayEquals(here, all[0].getHosts());
      assertArrayEquals(
          here, small.listLocatedStatus(p).next().getBlockLocations()[1].getHosts());
      assertEquals(1, small.getFileBlockLocations(s, 1 << 20, 1).length);
    }
  }

  @Test
  void hflushIsSeenAndSurvivesTheDaemon() throws Exception {
    Path p = new Path("/wal");
    byte[] data = random(100_000);
    try (FSDataOutputStream out = fs.create(p)) {
      assertEquals(0, fs.getFileStatus(p).getLen());
      assertTrue(out.hasCapability("hflush") && out.hasCapability("hsync"));
      out.write(data, 0, 60_000);
      out.hflush();
      assertEquals(60_000, fs.getFileStatus(p).getLen());
      Daemon.get().kill();
      Daemon.get().start();
      assertArrayEquals(Arrays.copyOf(data, 60_000), readAll(p));
      out.write(data, 60_000, 40_000);
    }
    assertArrayEquals(data, readAll(p));
    assertNotNull(fs.getFileChecksum(p));
  }

  /** HBase's handlers write one log from many threads. */
  @Test
  void streamsAreSafeForManyThreads() throws Exception {
    Path p = new Path("/threads");
    int threads = 4;
    int records = 2000;
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try (FSDataOutputStream out = fs.create(p)) {
      List<Future<?>> all = new ArrayList<>();
      for (int t = 0; t < threads; t++) {
        byte mine = (byte) (t + 1);
        all.add(
            pool.submit(
                () -> {
                  byte[] record = new byte[100];
                  Arrays.fill(record, mine);
                  for (int i = 0; i < records; i++) {
                    out.getWrappedStream().write(record, 0, record.length);
                    if (i % 500 == 0) {
                      out.hflush();
                    }
                  }
                  return null;
                }));
      }
      for (Future<?> f : all) {
        f.get(100, TimeUnit.SECONDS);
      }
    } finally {
      pool.shutdownNow();
    }
    byte[] got = readAll(p);
    assertEquals(threads * records * 100, got.length);
    int[] counts = new int[threads + 1];
    for (int at = 0; at < got.length; at += 100) {
      byte first = got[at];
      counts[first]++;
      for (int i = 0; i < 100; i++) {
        assertEquals(first, got[at + i], "a record is torn");
      }
    }
    for (int t = 1; t <= threads; t++) {
      assertEquals(records, counts[t]);
    }
  }

  @Test
  void overwritingWhatIsBeingWrittenTellsItsWriter() throws Exception {
    Path p = new Path("/overwritten");
    FSDataOutputStream first = fs.create(p);
    first.write(1);
    first.hflush();
    assertThrows(FileAlreadyExistsException.class, () -> fs.create(p, false));
    assertThrows(IOException.class, () -> fs.append(p));
    try (FSDataOutputStream second = fs.create(p, true)) {
      second.write(2);
      first.write(3);
      assertThrows(FileNotFoundException.class, first::close);
    }
    assertArrayEquals(new byte[] {2}, readAll(p));
  }

  @Test
  void recoveredLeaseFencesItsWriter() throws Exception {
    Path p = new Path("/recovered");
    ForebayFileSystem own = assertInstanceOf(ForebayFileSystem.class, fs);
    FSDataOutputStream zombie = fs.create(p);
    zombie.write(random(1000));
    zombie.hflush();
    zombie.write(1);
    assertFalse(own.isFileClosed(p));
    assertNull(fs.getFileChecksum(p));
    assertTrue(own.recoverLease(p));
    assertTrue(own.isFileClosed(p));
    assertThrows(IOException.class, zombie::hflush);
    assertThrows(IOException.class, zombie::close);
    assertArrayEquals(random(1000), readAll(p));
    try (FSDataOutputStream out = fs.append(p)) {
      assertEquals(1000, out.getPos());
      out.write(9);
    }
    assertEquals(1001, fs.getFileStatus(p).getLen());
  }

  /** Bytes are handed out where they lie. */
  @Test
  void zeroCopyReads() throws Exception {
    Path p = new Path("/zerocopy");
    byte[] data = random(3 << 20);
    try (FSDataOutputStream out = fs.create(p)) {
      out.write(data);
    }
    try (FSDataInputStream in = fs.open(p)) {
      ElasticByteBufferPool pool = new ElasticByteBufferPool();
      int at = 0;
      ByteBuffer b;
      while ((b = in.read(pool, 1 << 20, EnumSet.noneOf(ReadOption.class))) != null) {
        assertTrue(b.isDirect() && b.isReadOnly());
        byte[] part = new byte[b.remaining()];
        b.get(part);
        assertEquals(0, Arrays.compare(data, at, at + part.length, part, 0, part.length));
        at += part.length;
        in.releaseBuffer(b);
      }
      assertEquals(data.length, at);
    }
  }

  /** Tests of handles that the contract's suite lacks. */
  @Test
  void pathHandles() throws Exception {
    Path p = new Path("/handle");
    FSDataOutputStream out = fs.create(p);
    out.write(1);
    out.hflush();
    FileStatus open = fs.getFileStatus(p);
    assertThrows(
        UnsupportedOperationException.class,
        () -> fs.getPathHandle(open, Options.HandleOpt.exact()));
    PathHandle any = fs.getPathHandle(open, Options.HandleOpt.path());
    fs.open(any).close();
    out.close();
    fs.open(any).close();

    FileStatus closed = fs.listLocatedStatus(p).next();
    PathHandle exact = fs.getPathHandle(closed, Options.HandleOpt.exact());
    assertThrows(
        UnsupportedOperationException.class,
        () -> fs.getPathHandle(closed, Options.HandleOpt.content()));
    assertThrows(
        UnsupportedOperationException.class,
        () -> fs.getPathHandle(closed, Options.HandleOpt.reference()));
    fs.setTimes(p, 1000, -1);
    fs.open(exact).close();
    try (FSDataOutputStream again = fs.append(p)) {
      again.write(2);
      again.hflush();
      assertThrows(InvalidPathHandleException.class, () -> fs.open(exact));
    }
    assertThrows(InvalidPathHandleException.class, () -> fs.open(exact));

    // Another file of the same name and content.
    fs.rename(p, new Path("/handle-moved"));
    try (FSDataOutputStream other = fs.create(p)) {
      other.write(new byte[] {1, 2});
    }
    assertThrows(InvalidPathHandleException.class, () -> fs.open(any));

    byte[] garbage = any.toByteArray();
    garbage[1] = 7;
    assertThrows(
        InvalidPathHandleException.class,
        () -> fs.open(new RawPathHandle(ByteBuffer.wrap(garbage))));
    for (int n : new int[] {0, 1, 17, 18, 20}) {
      ByteBuffer cut = ByteBuffer.wrap(any.toByteArray(), 0, n);
      assertThrows(InvalidPathHandleException.class, () -> fs.open(new RawPathHandle(cut)), n + "");
    }
    FileSystem elsewhere = TestBuffer.fileSystem("classic");
    assertThrows(InvalidPathHandleException.class, () -> elsewhere.open(any));
  }

  /** Runs as a process of a job elsewhere, which has no key, but the job's token. */
  private static <T> T elsewhere(Credentials given, PrivilegedExceptionAction<T> what)
      throws Exception {
    UserGroupInformation user = UserGroupInformation.createRemoteUser("executor");
    user.addCredentials(given);
    return user.doAs(what);
  }

  private static FileSystem far(String buffer) throws IOException {
    Configuration conf = new Configuration();
    conf.set(ForebayFileSystem.ADDRESS, Daemon.get().tcp());
    return FileSystem.newInstance(TestBuffer.uri(buffer), conf);
  }

  @Test
  void delegationTokens() throws Exception {
    Credentials job = new Credentials();
    Token<?>[] made = fs.addDelegationTokens("whoever", job);
    assertEquals(1, made.length);
    assertEquals("forebay", made[0].getKind().toString());
    assertEquals("bb://own", made[0].getService().toString());
    assertEquals(0, fs.addDelegationTokens("whoever", job).length, "it has one");
    assertFalse(made[0].isManaged(), "nobody renews it");

    byte[] data = random(300_000);
    Path p = new Path("/delegated");
    elsewhere(
        job,
        () -> {
          try (FileSystem there = far("own")) {
            try (FSDataOutputStream out = there.create(p)) {
              out.write(data);
            }
            // Its own children get the same.
            Credentials next = new Credentials();
            assertEquals(made[0], there.addDelegationTokens("whoever", next)[0]);
          }
          assertThrows(AccessControlException.class, () -> far("main"));
          return null;
        });
    assertArrayEquals(data, readAll(p));
    elsewhere(
        new Credentials(),
        () -> assertThrows(AccessControlException.class, () -> far("own")));
    // A change of the label gains nothing.
    Credentials relabelled = new Credentials();
    Token<?> wrong = made[0].copyToken();
    wrong.setService(new Text("bb://main"));
    relabelled.addToken(wrong.getService(), wrong);
    elsewhere(
        relabelled,
        () -> {
          try (FileSystem there = far("main")) {
            return assertThrows(AccessControlException.class, () -> there.getFileStatus(p));
          }
        });
  }

  /** hadoop dtutil writes a token to a file, which HADOOP_TOKEN_FILE_LOCATION names. */
  @Test
  void tokensInFiles() throws Exception {
    java.nio.file.Path file = Daemon.get().dir().resolve("job.tokens");
    assertEquals(
        0,
        ToolRunner.run(
            TestBuffer.conf("own"),
            new DtUtilShell(),
            new String[] {"get", "bb://own", file.toString()}));
    Credentials read = Credentials.readTokenStorageFile(file.toFile(), new Configuration());
    assertEquals(1, read.numberOfTokens());
    elsewhere(
        read,
        () -> {
          try (FileSystem there = far("own")) {
            return there.listStatus(new Path("/"));
          }
        });
  }

  @Test
  void daemonWithoutKeyMakesNoTokens() throws Exception {
    Daemon open = new Daemon("--key-file", "", "--listen-tcp", "");
    open.bbctl("buffer", "create", "keyless");
    Configuration conf = new Configuration();
    conf.set(ForebayFileSystem.ADDRESS, open.socket());
    try (FileSystem keyless = FileSystem.newInstance(URI.create("bb://keyless"), conf)) {
      assertEquals(0, keyless.addDelegationTokens("whoever", new Credentials()).length);
    }
  }

  @Test
  void truncate() throws Exception {
    Path dir = new Path("/truncated");
    Path p = new Path(dir, "f");
    byte[] data = random(5_000_000);
    try (FSDataOutputStream out = fs.create(p)) {
      out.write(data);
      out.hflush();
      assertThrows(IOException.class, () -> fs.truncate(p, 1), "it is being written");
    }
    fs.setPermission(p, new FsPermission((short) 0640));
    try (FSDataInputStream before = fs.open(p)) {
      for (int n : new int[] {5_000_000, 4_000_001, 3 << 20, 1, 0}) {
        assertTrue(fs.truncate(p, n));
        assertArrayEquals(Arrays.copyOf(data, n), readAll(p));
        assertEquals(new FsPermission((short) 0640), fs.getFileStatus(p).getPermission());
        assertEquals(1, fs.listStatus(dir).length, "nothing is left beside it");
      }
      byte[] all = new byte[data.length];
      before.readFully(0, all);
      assertArrayEquals(data, all, "who had it open reads what it was");
    }
    try (FSDataOutputStream out = fs.append(p)) {
      out.write(data, 0, 10);
    }
    assertArrayEquals(Arrays.copyOf(data, 10), readAll(p));
    assertThrows(IllegalArgumentException.class, () -> fs.truncate(p, 11));
    assertThrows(IllegalArgumentException.class, () -> fs.truncate(p, -1));
    assertThrows(FileNotFoundException.class, () -> fs.truncate(dir, 0));
    assertThrows(FileNotFoundException.class, () -> fs.truncate(new Path(dir, "none"), 0));
    assertEquals(10, fs.getFileStatus(p).getLen());
    assertTrue(fs.hasPathCapability(p, CommonPathCapabilities.FS_TRUNCATE));

    // On a buffer whose close waits for the store, which never gets the file that is copied to.
    java.nio.file.Path store =
        java.nio.file.Files.createDirectory(Daemon.get().dir().resolve("store-durable"));
    Daemon.get()
        .bbctl(
            "buffer", "create", "durable", "--backing", "file://" + store, "--durability", "flushed");
    try (FileSystem durable =
        FileSystem.newInstance(URI.create("bb://durable"), TestBuffer.conf("own"))) {
      Path q = new Path("/f");
      try (FSDataOutputStream out = durable.create(q)) {
        out.write(data);
      }
      assertTrue(durable.truncate(q, 100));
      Daemon.get().bbctl("drain", "durable");
      byte[] kept = java.nio.file.Files.readAllBytes(store.resolve("f"));
      assertArrayEquals(Arrays.copyOf(data, 100), kept);
    }
  }

  /** Of many renames to one name at once, without replacing, one succeeds. */
  @Test
  void renamesRace() throws Exception {
    int threads = 6;
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      for (int round = 0; round < 10; round++) {
        Path dir = new Path("/race" + round);
        Path target = new Path(dir, "target");
        List<Future<Boolean>> all = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
          Path source = new Path(dir, "source" + t);
          try (FSDataOutputStream out = fs.create(source)) {
            out.write(t);
          }
        }
        CountDownLatch go = new CountDownLatch(1);
        for (int t = 0; t < threads; t++) {
          Path source = new Path(dir, "source" + t);
          all.add(
              pool.submit(
                  () -> {
                    go.await();
                    return fs.rename(source, target);
                  }));
        }
        go.countDown();
        int winner = -1;
        for (int t = 0; t < threads; t++) {
          if (all.get(t).get(100, TimeUnit.SECONDS)) {
            assertEquals(-1, winner, "two of them did");
            winner = t;
          }
        }
        assertArrayEquals(new byte[] {(byte) winner}, readAll(target));
        assertEquals(threads, fs.listStatus(dir).length, "those that lost are where they were");
      }
    } finally {
      pool.shutdownNow();
    }
  }

  /** A listing of a directory while it is renamed has all of it, under one name or the other. */
  @Test
  void renamedDirectoriesAreSeenWhole() throws Exception {
    int files = 40;
    int renames = 60;
    Path[] names = {new Path("/whole/a"), new Path("/whole/b")};
    for (int i = 0; i < files; i++) {
      fs.create(new Path(names[0], "d" + i % 4 + "/f" + i)).close();
    }
    ExecutorService pool = Executors.newSingleThreadExecutor();
    try {
      Future<?> renaming =
          pool.submit(
              () -> {
                for (int i = 0; i < renames; i++) {
                  assertTrue(fs.rename(names[i % 2], names[(i + 1) % 2]));
                }
                return null;
              });
      int seen = 0;
      for (boolean last = false; !last; ) {
        last = renaming.isDone();
        for (Path p : names) {
          try {
            assertEquals(4, fs.listStatus(p).length);
            seen++;
          } catch (FileNotFoundException e) {
            // It has the other name.
          }
        }
        assertEquals(1, fs.listStatus(names[0].getParent()).length);
      }
      renaming.get(100, TimeUnit.SECONDS);
      assertTrue(seen > 0);
      assertEquals(files, fs.getContentSummary(names[0].getParent()).getFileCount());
    } finally {
      pool.shutdownNow();
    }
  }
}
