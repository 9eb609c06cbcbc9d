package forebay.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.BufferSpec;
import forebay.client.Client;
import forebay.client.ClientOptions;
import forebay.client.Txn;
import forebay.client.testing.Daemon;
import forebay.hadoop.ForebayCommitter;
import forebay.hadoop.ForebayFileSystem;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.ManifestSuccessData;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Writes of Spark SQL through the protocol, in one JVM, against a real daemon. */
@Timeout(240)
class ForebayCommitProtocolTest {
  private static final String BUFFER = "sparksql";
  private static final String PROTOCOL = "spark.sql.sources.commitProtocolClass";
  private static final AtomicInteger NAMES = new AtomicInteger();
  private static Client client;
  private static SparkSession spark;

  @BeforeAll
  static void start() throws Exception {
    Daemon daemon = Daemon.get();
    client = Client.dial(ClientOptions.defaults().withAddress(daemon.socket()));
    java.nio.file.Path store = Files.createDirectories(daemon.dir().resolve("store-spark"));
    client.createBuffer(BufferSpec.named(BUFFER, "file://" + store));
    spark =
        SparkSession.builder()
            .master("local[2,3]") // a task may fail twice
            .appName("protocol")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", daemon.dir().resolve("warehouse").toString())
            .config("spark.local.dir", daemon.dir().resolve("spark").toString())
            .config("spark.hadoop." + ForebayFileSystem.ADDRESS, daemon.socket())
            .config("spark.hadoop." + ForebayCommitter.DURABILITY, "resident")
            .config(PROTOCOL, ForebayCommitProtocol.class.getName())
            .getOrCreate();
  }

  @AfterAll
  static void stop() {
    spark.stop();
    client.close();
  }

  @AfterEach
  void nothingIsLeftOpen() throws Exception {
    for (Txn.Info t : client.buffer(BUFFER).txns()) {
      assertTrue(
          t.state().isDecided() || t.state() == Txn.State.ABORTED,
          t.destination() + " is " + t.state());
    }
  }

  private static String directory() {
    return "bb://" + BUFFER + "/out" + NAMES.incrementAndGet();
  }

  /** Returns rows x, with x modulo 3 as p. */
  private static Dataset<Row> rows(int from, int to) {
    return spark.range(from, to, 1, 2).selectExpr("cast(id as int) x", "cast(id % 3 as int) p");
  }

  private static List<Integer> xs(Dataset<Row> d) {
    return d.selectExpr("x").collectAsList().stream().map(r -> r.getInt(0)).sorted().toList();
  }

  private static List<String> names(String dir) throws IOException {
    Path p = new Path(dir);
    FileSystem fs = p.getFileSystem(spark.sparkContext().hadoopConfiguration());
    return Arrays.stream(fs.listStatus(p)).map(FileStatus::getPath).map(Path::getName).toList();
  }

  private static String committer(String dir) throws IOException {
    Path p = new Path(dir, "_SUCCESS");
    return ManifestSuccessData.load(
            p.getFileSystem(spark.sparkContext().hadoopConfiguration()), p)
        .getCommitter();
  }

  @ParameterizedTest
  @ValueSource(strings = {"parquet", "orc", "csv"})
  void overwriteOfPartitions(String format) throws Exception {
    String dir = directory();
    rows(0, 9).write().partitionBy("p").format(format).option("header", true).save(dir);
    assertEquals(ForebayCommitter.class.getName(), committer(dir));
    rows(9, 30)
        .where("p <> 1")
        .write()
        .partitionBy("p")
        .format(format)
        .option("header", true)
        .option("partitionOverwriteMode", "dynamic")
        .mode(SaveMode.Overwrite)
        .save(dir);
    Dataset<Row> all =
        spark.read().format(format).option("header", true).option("inferSchema", true).load(dir);
    List<Integer> want =
        IntStream.range(0, 30)
            .filter(x -> x % 3 == 1 ? x < 9 : x >= 9)
            .boxed()
            .toList();
    assertEquals(want, xs(all));
    assertEquals(List.of("_SUCCESS", "p=0", "p=1", "p=2"), names(dir));
  }

  /** Old files stay until the commit. A job that fails has overwritten nothing. */
  @Test
  void overwriteThatFails() throws Exception {
    String dir = directory();
    rows(0, 9).write().parquet(dir);
    Dataset<Row> failing =
        rows(9, 18).selectExpr("if(x = 17, cast(raise_error('on purpose') as int), x) x", "p");
    assertThrows(Exception.class, () -> failing.write().mode(SaveMode.Overwrite).parquet(dir));
    assertEquals(xs(rows(0, 9)), xs(spark.read().parquet(dir)));
    rows(9, 18).write().mode(SaveMode.Overwrite).parquet(dir);
    assertEquals(xs(rows(9, 18)), xs(spark.read().parquet(dir)));
    rows(18, 20).write().mode(SaveMode.Append).parquet(dir);
    assertEquals(xs(rows(9, 20)), xs(spark.read().parquet(dir)));
  }

  /** One partition lies outside the table, another in it under a name of its own. */
  @ParameterizedTest
  @ValueSource(strings = {"static", "dynamic"})
  void partitionsWithLocationsOfTheirOwn(String mode) throws Exception {
    String dir = directory();
    String elsewhere = directory();
    String table = "t" + NAMES.incrementAndGet();
    spark.sql("set spark.sql.sources.partitionOverwriteMode=" + mode);
    spark.sql(
        "create table " + table + " (x int, p int) using parquet partitioned by (p) location '" + dir + "'");
    try {
      spark.sql("alter table " + table + " add partition (p=0) location '" + elsewhere + "'");
      spark.sql("alter table " + table + " add partition (p=1) location '" + dir + "/other'");
      rows(0, 9).createOrReplaceTempView("some");
      spark.sql("insert into " + table + " select x, p from some");
      assertEquals(xs(rows(0, 9)), xs(spark.table(table)));
      assertTrue(names(elsewhere).stream().anyMatch(n -> n.endsWith(".parquet")), elsewhere);
      assertEquals(List.of("_SUCCESS", "other", "p=2"), names(dir));
      rows(9, 18).where("p < 2").createOrReplaceTempView("some");
      spark.sql("insert overwrite table " + table + " select x, p from some");
      List<Integer> want =
          IntStream.range(0, 18)
              .filter(x -> x % 3 < 2 ? x >= 9 : x < 9 && mode.equals("dynamic"))
              .boxed()
              .toList();
      assertEquals(want, xs(spark.table(table)));
      spark.sql("insert overwrite table " + table + " partition (p=2) values (100)");
      assertEquals(List.of(100), xs(spark.table(table).where("p = 2")));
      assertTrue(xs(spark.table(table)).containsAll(want.stream().filter(x -> x % 3 < 2).toList()));
    } finally {
      spark.sql("drop table " + table);
      spark.sql("set spark.sql.sources.partitionOverwriteMode=static");
    }
  }

  /**
   * Has the first attempt of each task fail after it has committed, before the driver gets its
   * report.
   */
  public static final class Unheard extends ForebayCommitProtocol {
    private static final long serialVersionUID = 1;

    /** Is called by Spark. */
    public Unheard(String job, String destination, boolean dynamic) {
      super(job, destination, dynamic);
    }

    @Override
    public TaskCommitMessage commitTask(TaskAttemptContext c) {
      TaskCommitMessage m = super.commitTask(c);
      if (TaskContext.get().attemptNumber() == 0) {
        throw new IllegalStateException("the executor is lost, on purpose");
      }
      return m;
    }
  }

  @Test
  void attemptsThatCommitUnheard() throws Exception {
    String dir = directory();
    rows(0, 9).write().partitionBy("p").parquet(dir);
    spark.conf().set(PROTOCOL, Unheard.class.getName());
    try {
      rows(9, 30)
          .where("p <> 1")
          .write()
          .partitionBy("p")
          .option("partitionOverwriteMode", "dynamic")
          .mode(SaveMode.Overwrite)
          .parquet(dir);
    } finally {
      spark.conf().set(PROTOCOL, ForebayCommitProtocol.class.getName());
    }
    List<Integer> want =
        IntStream.range(0, 30)
            .filter(x -> x % 3 == 1 ? x < 9 : x >= 9)
            .boxed()
            .toList();
    assertEquals(want, xs(spark.read().parquet(dir)));
  }

  /** The class may be set for a whole session. Elsewhere Spark works as it always has. */
  @Test
  void outputsElsewhere() throws Exception {
    String dir = "file://" + Files.createTempDirectory(Daemon.get().dir(), "out") + "/t";
    rows(0, 9).write().partitionBy("p").parquet(dir);
    rows(9, 12)
        .where("p = 0")
        .write()
        .partitionBy("p")
        .option("partitionOverwriteMode", "dynamic")
        .mode(SaveMode.Overwrite)
        .parquet(dir);
    assertEquals(List.of(1, 2, 4, 5, 7, 8, 9), xs(spark.read().parquet(dir)));
    rows(20, 21).write().mode(SaveMode.Overwrite).parquet(dir);
    assertEquals(List.of(20), xs(spark.read().parquet(dir)));
    assertFalse(Files.exists(java.nio.file.Path.of(dir.substring(7), ".spark-staging")));
  }
}
