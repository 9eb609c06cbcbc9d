package forebay.apps.hbase;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.PerformanceEvaluation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.RecoverLeaseFSUtils;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.CleanupMode;
import org.junit.jupiter.api.io.TempDir;

/** HBase with its write-ahead logs in a buffer, and everything else on a file system. */
class HBaseTest {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] COLUMN = Bytes.toBytes("c");
  private static final int WRITERS = 4;

  @TempDir(cleanup = CleanupMode.ON_SUCCESS)
  static Path dir;

  private static HBaseCluster cluster;
  private static HBaseCluster.Server regionServer;

  @BeforeAll
  static void start() throws Exception {
    Path store = Files.createDirectory(dir.resolve("store"));
    Daemon.get().bbctl("buffer", "create", "wal", "--backing", "file://" + store);
    cluster =
        new HBaseCluster(
            dir.resolve("hbase"),
            Map.of(
                "hbase.rootdir", dir.resolve("root").toUri().toString(),
                "hbase.wal.dir", "bb://wal/hbase",
                "fs.bb.address", Daemon.get().socket()),
            List.of("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    cluster.startMaster();
    regionServer = cluster.startRegionServer();
  }

  @AfterAll
  static void stop() throws Exception {
    cluster.close();
  }

  /** Returns a client's configuration that outlasts a region server's death on a busy machine. */
  private static Configuration patient() {
    Configuration conf = new Configuration(cluster.conf());
    int ms = (int) TimeUnit.SECONDS.toMillis(HBaseCluster.PATIENCE_S);
    conf.setInt("hbase.client.operation.timeout", ms);
    conf.setInt("hbase.client.meta.operation.timeout", ms);
    conf.setInt("hbase.rpc.timeout", 20_000);
    conf.setInt("hbase.client.retries.number", 10_000);
    conf.setInt("hbase.client.pause", 20);
    return conf;
  }

  @Test
  void logsAlone() throws Exception {
    for (String provider : List.of("asyncfs", "filesystem")) {
      Configuration conf = new Configuration(cluster.conf());
      conf.set("hbase.wal.provider", provider);
      String path = "bb://wal/alone-" + provider;
      conf.set("hbase.rootdir", path);
      conf.unset("hbase.wal.dir");
      Class<?> program = Class.forName("org.apache.hadoop.hbase.wal.WALPerformanceEvaluation");
      String[] args = {
        "-path", path, "-threads", "3", "-iterations", "2000",
        "-valueSize", "512", "-roll", "2500", "-verify",
      };
      // It reads all logs again, and fails where edits are missing or out of order.
      Tool tool = (Tool) program.getConstructor().newInstance();
      assertEquals(0, ToolRunner.run(conf, tool, args), provider);
    }
  }

  @Test
  void performanceEvaluation() throws Exception {
    Configuration conf = patient();
    for (String command : List.of("sequentialWrite", "randomRead")) {
      String[] args = {"--nomapred", "--rows=2000", "--valueSize=1024", "--presplit=2", command, "1"};
      assertEquals(0, ToolRunner.run(conf, new PerformanceEvaluation(conf), args), command);
    }
    try (Connection c = ConnectionFactory.createConnection(conf);
        Table t = c.getTable(TableName.valueOf("TestTable"))) {
      assertEquals(2000, count(t));
    }
  }

  private static int count(Table t) throws Exception {
    int n = 0;
    try (ResultScanner rows = t.getScanner(new Scan())) {
      for (Result r : rows) {
        n += r.isEmpty() ? 0 : 1;
      }
    }
    return n;
  }

  @Test
  void regionServerKilled() throws Exception {
    Configuration conf = patient();
    TableName name = TableName.valueOf("survivors");
    ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
    try (Connection c = ConnectionFactory.createConnection(conf);
        Admin admin = c.getAdmin()) {
      admin.createTable(
          TableDescriptorBuilder.newBuilder(name)
              .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
              .build(),
          new byte[][] {Bytes.toBytes("2"), Bytes.toBytes("3")});
      AtomicInteger acknowledged = new AtomicInteger();
      AtomicInteger until = new AtomicInteger(Integer.MAX_VALUE);
      List<Future<Integer>> writers = new ArrayList<>();
      for (int w = 0; w < WRITERS; w++) {
        int writer = w;
        writers.add(threads.submit(() -> write(c, name, writer, acknowledged, until)));
      }
      await(() -> acknowledged.get() >= 2000, writers);
      // All of it is in memory and in logs alone, meta's own edits too.
      regionServer.kill();
      int before = acknowledged.get();
      HBaseCluster.Server killed = regionServer;
      cluster.forgetKilled(killed);
      regionServer = cluster.startRegionServer();
      await(() -> acknowledged.get() >= before + 500, writers);
      until.set(0);
      try (Table t = c.getTable(name)) {
        for (int w = 0; w < WRITERS; w++) {
          int wrote = writers.get(w).get(HBaseCluster.PATIENCE_S, TimeUnit.SECONDS);
          for (int i = 0; i < wrote; i++) {
            byte[] got = t.get(new Get(row(w, i))).getValue(FAMILY, COLUMN);
            assertEquals(value(w, i), Bytes.toString(got), "acknowledged row of writer " + w);
          }
        }
      }
    } finally {
      threads.shutdownNow();
    }
  }

  /** Puts a row after the other until it is stopped, and returns how many were acknowledged. */
  private static int write(
      Connection c, TableName name, int writer, AtomicInteger acknowledged, AtomicInteger until)
      throws Exception {
    try (Table t = c.getTable(name)) {
      int i = 0;
      for (; i < until.get(); i++) {
        t.put(new Put(row(writer, i)).addColumn(FAMILY, COLUMN, Bytes.toBytes(value(writer, i))));
        acknowledged.incrementAndGet();
      }
      return i;
    }
  }

  private static byte[] row(int writer, int i) {
    return Bytes.toBytes(String.format("%d-%07d", writer, i));
  }

  private static String value(int writer, int i) {
    return "value-" + writer + "-" + i + "-" + "x".repeat(i % 1000);
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  /** Waits until a condition holds, and fails if a writer ends before. */
  private static void await(Condition condition, List<Future<Integer>> writers) throws Exception {
    long deadline = System.nanoTime() + Duration.ofSeconds(HBaseCluster.PATIENCE_S).toNanos();
    while (!condition.holds()) {
      for (Future<Integer> w : writers) {
        assertFalse(w.isDone(), "a writer ended");
      }
      assertTrue(System.nanoTime() < deadline, "waited for too long");
      Thread.sleep(20);
    }
  }

  @Test
  void leasesAreRecoverable() throws Exception {
    FileSystem fs = FileSystem.get(URI.create("bb://wal"), cluster.conf());
    assertTrue(RecoverLeaseFSUtils.isLeaseRecoverable(fs));
  }
}
