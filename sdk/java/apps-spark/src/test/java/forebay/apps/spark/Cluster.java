package forebay.apps.spark;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.deploy.master.Master;
import org.apache.spark.deploy.worker.Worker;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import scala.Option;

/**
 * A Spark cluster of its own, with a daemon, for all tests of a JVM: a master and two workers in
 * this process, executors in processes of their own that can be killed.
 *
 * <p>It is Spark's local-cluster, or, where {@link #MASTER} names none, the same with an address of
 * its own for each worker, since Spark runs a speculative attempt only on another host.
 */
final class Cluster implements ExtensionContext.Store.CloseableResource {
  /** The property with the master that tests are run on. {@link #TWO_HOSTS} need one of ours. */
  private static final String MASTER = "forebay.spark.master";

  /** The tag of tests that local-cluster is not enough for. */
  static final String TWO_HOSTS = "two-hosts";

  private static final String BUFFER = "spark";
  private static final String DRIVER = "127.0.0.1";
  private static final List<String> HOSTS = List.of("127.0.0.1", "127.0.0.2");

  /** One core of each worker is for the tests' own session, one for programs that they start. */
  private static final int CORES = 2;

  private static final int MEMORY_MIB = 2048;
  /** Processes that live for seconds. */
  static final String JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1";

  private final Path build = Path.of(System.getProperty("forebay.build"));
  private final Path files = Files.createDirectories(build.resolve("spark/" + UUID.randomUUID()));
  private final Daemon daemon = Daemon.get();
  private final List<RpcEnv> servers = new ArrayList<>();
  private final String master;
  private final SparkSession spark;

  private Cluster() throws IOException, InterruptedException {
    Path store = Files.createDirectories(daemon.dir().resolve("store"));
    daemon.bbctl("buffer", "create", BUFFER, "--backing", "file://" + store);

    String given = System.getProperty(MASTER, "");
    master = given.isEmpty() ? twoHosts() : given;
    spark = SparkSession.builder().config(driver()).getOrCreate();
  }

  /** Starts a master and workers, and returns the master's address. */
  private String twoHosts() {
    SparkConf conf = new SparkConf(false).set("spark.master.rest.enabled", "false");
    RpcEnv server = Master.startRpcEnvAndEndpoint(DRIVER, 0, 0, conf)._1();
    servers.add(server);
    String address = server.address().toSparkURL();
    for (String host : HOSTS) {
      String work = files.resolve("worker-" + host).toString();
      String[] masters = {address};
      servers.add(
          Worker.startRpcEnvAndEndpoint(
              host, 0, 0, CORES, MEMORY_MIB, masters, work, Option.apply(1), conf, Option.empty()));
    }
    return address;
  }

  private SparkConf driver() throws IOException {
    SparkConf conf = new SparkConf(false).setAppName("forebay-tests").setMaster(master);
    settings().forEach(conf::set);
    conf.set("spark.local.dir", files.resolve("local").toString());
    conf.set("spark.sql.warehouse.dir", files.resolve("warehouse").toString());
    // A task that takes clearly longer than half of the others gets a second attempt.
    conf.set("spark.speculation", "true");
    conf.set("spark.speculation.interval", "100ms");
    conf.set("spark.speculation.multiplier", "1.5");
    conf.set("spark.speculation.quantile", "0.5");
    return conf;
  }

  /** Returns the settings of every application on this cluster. */
  Map<String, String> settings() throws IOException {
    return Map.ofEntries(
        Map.entry("spark.hadoop.fs.bb.address", daemon.socket()),
        // The committer of saveAsTextFile, which does not look for one by scheme.
        Map.entry(
            "spark.hadoop.mapred.output.committer.class", "forebay.hadoop.ForebayMapredCommitter"),
        Map.entry("spark.cores.max", Integer.toString(HOSTS.size())),
        Map.entry("spark.executor.cores", "1"),
        Map.entry("spark.executor.memory", "768m"),
        Map.entry("spark.executor.extraClassPath", classPath()),
        Map.entry("spark.executor.extraJavaOptions", JVM),
        Map.entry("spark.driver.host", DRIVER),
        Map.entry("spark.driver.bindAddress", DRIVER),
        Map.entry("spark.ui.enabled", "false"),
        Map.entry("spark.default.parallelism", "4"),
        // For small data, neither planning anew nor compiling pays.
        Map.entry("spark.sql.shuffle.partitions", "4"),
        Map.entry("spark.sql.adaptive.enabled", "false"),
        Map.entry("spark.sql.codegen.wholeStage", "false"));
  }

  /**
   * Returns the part of this JVM's class path that is not Spark's own: ours, and the tests'
   * libraries.
   */
  String classPath() throws IOException {
    Path jars = Path.of(System.getenv("SPARK_HOME"), "jars");
    List<String> own = new ArrayList<>();
    for (String part : System.getProperty("java.class.path").split(":")) {
      Path dir = Path.of(part).getParent();
      if (!jars.equals(dir) && !jars.toRealPath().equals(dir)) {
        own.add(part);
      }
    }
    return String.join(":", own);
  }

  /** Returns the master's address. */
  String master() {
    return master;
  }

  /** Returns a session with settings of its own, of the one application. */
  SparkSession session(Map<String, String> settings) {
    SparkSession s = spark.newSession();
    settings.forEach(s.conf()::set);
    return s;
  }

  /** Returns a session of the one application. */
  SparkSession session() {
    return session(Map.of());
  }

  JavaSparkContext context() {
    return JavaSparkContext.fromSparkContext(spark.sparkContext());
  }

  Configuration hadoop() {
    return context().hadoopConfiguration();
  }

  /** Returns the address of a folder in the buffer, which is not there yet. */
  String bb(String name) {
    return "bb://" + BUFFER + "/" + name;
  }

  /** Returns the address of a folder on a local disk, which is not there yet. */
  String file(String name) {
    return "file://" + files.resolve("data").resolve(name);
  }

  /** Returns a new folder of this machine, for tests and executors. */
  Path shared(String name) throws IOException {
    return Files.createDirectories(files.resolve("shared").resolve(name));
  }

  @Override
  public void close() {
    spark.stop();
    // Workers first, since they report to the master.
    for (int i = servers.size() - 1; i >= 0; i--) {
      servers.get(i).shutdown();
      servers.get(i).awaitTermination();
    }
  }

  /** Hands the cluster to tests that have it as a parameter. */
  static final class Extension implements ParameterResolver {
    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
      return parameter.getParameter().getType() == Cluster.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
      return context
          .getRoot()
          .getStore(ExtensionContext.Namespace.GLOBAL)
          .getOrComputeIfAbsent(Cluster.class, key -> start(), Cluster.class);
    }

    private static Cluster start() {
      try {
        return new Cluster();
      } catch (IOException | InterruptedException e) {
        throw new IllegalStateException("cannot start a Spark cluster", e);
      }
    }
  }
}
