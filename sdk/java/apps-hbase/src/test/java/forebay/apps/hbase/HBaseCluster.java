package forebay.apps.hbase;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.zookeeper.MiniZooKeeperCluster;
import org.apache.zookeeper.ZooKeeper;

/**
 * HBase on loopback: ZooKeeper in this JVM, the master and each region server in a process of its
 * own, with this JVM's class path.
 */
public final class HBaseCluster implements AutoCloseable {
  /** The longest wait for events that must come, however busy the machine is. */
  public static final long PATIENCE_S = 240;

  /** Packages that Java 17 has to open to HBase, as in its own script. */
  private static final List<String> MODULES =
      List.of(
          "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
          "--add-opens=java.base/java.nio=ALL-UNNAMED",
          "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
          "--add-opens=java.base/java.lang=ALL-UNNAMED",
          "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
          "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
          "--add-opens=java.base/java.util=ALL-UNNAMED",
          "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
          "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
          "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED");

  /** A master or region server, and where it logs. */
  public record Server(Process process, Path log) {
    /** Ends it with SIGKILL and waits until it is gone. */
    public void kill() throws InterruptedException {
      process.destroyForcibly().waitFor();
    }
  }

  private final Path dir;
  private final List<String> javaOptions;
  private final MiniZooKeeperCluster zooKeeper;
  private final Configuration conf = HBaseConfiguration.create();
  private final List<Server> servers = new ArrayList<>();

  /**
   * Starts ZooKeeper, for a site with settings for the place of its files, and servers whose JVMs
   * have such options.
   */
  public HBaseCluster(Path dir, Map<String, String> settings, List<String> javaOptions)
      throws IOException, InterruptedException {
    this.javaOptions = javaOptions;
    this.dir = Files.createDirectories(dir);
    zooKeeper = new MiniZooKeeperCluster(conf);
    int port = zooKeeper.startup(Files.createDirectory(dir.resolve("zookeeper")).toFile());

    Map<String, String> site = new LinkedHashMap<>();
    site.put("hbase.cluster.distributed", "true");
    site.put("hbase.zookeeper.quorum", "127.0.0.1");
    site.put("hbase.zookeeper.property.clientPort", Integer.toString(port));
    // ZooKeeper allows no longer ones. On a busy machine a live server may send nothing for long.
    site.put("zookeeper.session.timeout", "40000");
    site.put("hbase.master.port", "0");
    site.put("hbase.regionserver.port", "0");
    site.put("hbase.master.info.port", "-1");
    site.put("hbase.regionserver.info.port", "-1");
    site.put("hbase.master.hostname", "localhost");
    site.put("hbase.unsafe.regionserver.hostname", "localhost");
    // One region server is enough, and its reports are frequent.
    site.put("hbase.master.wait.on.regionservers.mintostart", "1");
    site.put("hbase.master.wait.on.regionservers.maxtostart", "1");
    site.put("hbase.regionserver.msginterval", "300");
    site.put("hbase.regionserver.handler.count", "8");
    site.put("hbase.tmp.dir", dir.resolve("tmp").toString());
    site.putAll(settings);
    site.forEach(conf::set);
    Path classes = Files.createDirectory(dir.resolve("conf"));
    Configuration file = new Configuration(false);
    site.forEach(file::set);
    try (OutputStream out = Files.newOutputStream(classes.resolve("hbase-site.xml"))) {
      file.writeXml(out);
    }
    Files.writeString(
        classes.resolve("log4j.properties"),
        """
        log4j.rootLogger=INFO, stdout
        log4j.appender.stdout=org.apache.log4j.ConsoleAppender
        log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
        log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{1}: %m%n
        """);
  }

  /** Returns a client's configuration. */
  public Configuration conf() {
    return conf;
  }

  /** Starts the master. Callers wait for it. */
  public Server startMaster() throws IOException {
    return start("master", "org.apache.hadoop.hbase.master.HMaster");
  }

  /** Starts a region server, on a port of its own. Callers wait for it. */
  public Server startRegionServer() throws IOException {
    return start("regionserver", "org.apache.hadoop.hbase.regionserver.HRegionServer");
  }

  private Server start(String name, String mainClass) throws IOException {
    Path log = dir.resolve(name + "-" + servers.size() + ".log");
    List<String> line = new ArrayList<>();
    line.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    line.addAll(javaOptions);
    line.addAll(MODULES);
    String classes = dir.resolve("conf") + File.pathSeparator + System.getProperty("java.class.path");
    line.addAll(List.of("-cp", classes));
    line.addAll(List.of(mainClass, "start"));
    Process p =
        new ProcessBuilder(line).redirectErrorStream(true).redirectOutput(log.toFile()).start();
    Server s = new Server(p, log);
    servers.add(s);
    return s;
  }

  /**
   * Removes the traces of region servers that were killed, as HBase's scripts do after a crash, so
   * that the master need not wait until their sessions expire.
   */
  public void forgetKilled(Server killed) throws Exception {
    try (ZooKeeper zk =
        new ZooKeeper("127.0.0.1:" + zooKeeper.getClientPort(), 40_000, event -> {})) {
      for (String name : zk.getChildren("/hbase/rs", false)) {
        if (Files.readString(killed.log()).contains(name)) {
          zk.delete("/hbase/rs/" + name, -1);
        }
      }
    }
  }

  /** Ends all servers, and returns when they are gone. */
  @Override
  public void close() throws IOException {
    for (Server s : servers) {
      s.process().destroyForcibly();
    }
    for (Server s : servers) {
      s.process().onExit().orTimeout(PATIENCE_S, TimeUnit.SECONDS).join();
    }
    zooKeeper.shutdown();
  }
}
