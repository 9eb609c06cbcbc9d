package forebay.apps.hbase;

import forebay.client.testing.ProcessorTime;
import java.net.URI;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Times puts and gets of 1 KiB with all of HBase's files, logs too, on a store: {@code HBaseBench URL
 * SCRATCH [ROWS]}. URL is a folder for its files, SCRATCH a local one that is not there yet. One
 * client, one operation after the other. Each put waits for its log. The rows are then written to a
 * store file, whose blocks are not cached, and got at random. Prints lines {@code row}, what is
 * measured, the store, median and 99th percentile in microseconds, and the processor time that all
 * operations took in seconds, with tabs between.
 */
public final class HBaseBench {
  private static final TableName NAME = TableName.valueOf("bench");
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] COLUMN = Bytes.toBytes("c");
  private static final int VALUE = 1024;

  private HBaseBench() {}

  public static void main(String[] args) {
    try {
      measure(args);
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1);
    }
    System.exit(0); // ZooKeeper leaves threads
  }

  private static void measure(String[] args) throws Exception {
    URI url = URI.create(args[0]);
    int rows = args.length > 2 ? Integer.parseInt(args[2]) : 10_000;
    Map<String, String> settings = new HashMap<>();
    settings.put("hbase.rootdir", url + "/root");
    settings.put("hbase.wal.dir", url + "/logs");
    settings.put("dfs.replication", "1");
    if (url.getScheme().equals("file")) {
      // It promises nothing about flushed bytes, so HBase would refuse it.
      settings.put("hbase.unsafe.stream.capability.enforce", "false");
    }
    try (HBaseCluster cluster = new HBaseCluster(Path.of(args[1]), settings, List.of("-Xmx1g"))) {
      cluster.startMaster();
      cluster.startRegionServer();
      try (Connection c = ConnectionFactory.createConnection(cluster.conf());
          Admin admin = c.getAdmin()) {
        admin.createTable(
            TableDescriptorBuilder.newBuilder(NAME)
                .setColumnFamily(
                    ColumnFamilyDescriptorBuilder.newBuilder(FAMILY).setBlockCacheEnabled(false).build())
                .build());
        try (Table t = c.getTable(NAME)) {
          Random random = new Random(1);
          byte[] value = new byte[VALUE];
          Operation put =
              i -> {
                random.nextBytes(value);
                t.put(new Put(row(i)).addColumn(FAMILY, COLUMN, value));
              };
          time(rows / 2, put);
          print("HBase put of 1 KiB, µs (median, p99)", url, time(rows, put));
          admin.flush(NAME);
          Operation get =
              i -> {
                byte[] got = t.get(new Get(row(random.nextInt(rows)))).getValue(FAMILY, COLUMN);
                if (got == null || got.length != VALUE) {
                  throw new IllegalStateException("a row is not there");
                }
              };
          time(rows / 2, get);
          print("HBase get of 1 KiB, µs (median, p99)", url, time(rows, get));
        }
      }
    }
  }

  private interface Operation {
    void run(int i) throws Exception;
  }

  /** Of many operations: median and 99th percentile in microseconds, processor time of all in seconds. */
  private record Timed(double median, double p99, double processor) {}

  private static Timed time(int n, Operation op) throws Exception {
    double before = ProcessorTime.seconds();
    long[] took = new long[n];
    for (int i = 0; i < n; i++) {
      long began = System.nanoTime();
      op.run(i);
      took[i] = System.nanoTime() - began;
    }
    double processor = ProcessorTime.seconds() - before;
    Arrays.sort(took);
    return new Timed(took[n / 2] / 1e3, took[n * 99 / 100] / 1e3, processor);
  }

  private static void print(String what, URI url, Timed t) {
    System.out.printf(
        Locale.ROOT,
        "row\t%s\t%s\t%.0f, %.0f\t%.1f%n",
        what,
        url.getScheme(),
        t.median(),
        t.p99(),
        t.processor());
  }

  private static byte[] row(int i) {
    return Bytes.toBytes(String.format("%09d", i));
  }
}
