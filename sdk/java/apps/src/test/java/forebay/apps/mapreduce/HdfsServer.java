package forebay.apps.mapreduce;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * A HDFS to compare with: a name node and one data node in this process, on free ports of loopback.
 * {@code HdfsServer FOLDER} keeps everything in that folder, writes its URL to FOLDER/url when it
 * serves, and runs until it is killed.
 */
public final class HdfsServer {
  private HdfsServer() {}

  public static void main(String[] args) {
    try {
      serve(Path.of(args[0]));
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1); // the server's threads would go on
    }
  }

  private static void serve(Path dir) throws Exception {
    Configuration conf = new Configuration();
    FileSystem.setDefaultUri(conf, "hdfs://127.0.0.1:0");
    conf.setInt("dfs.replication", 1);
    conf.set("dfs.namenode.name.dir", dir.resolve("name").toUri().toString());
    conf.set("dfs.datanode.data.dir", dir.resolve("data").toUri().toString());
    conf.set("dfs.namenode.http-address", "127.0.0.1:0");
    conf.set("dfs.datanode.address", "127.0.0.1:0");
    conf.set("dfs.datanode.http.address", "127.0.0.1:0");
    conf.set("dfs.datanode.ipc.address", "127.0.0.1:0");
    conf.set("hadoop.tmp.dir", dir.resolve("tmp").toString());
    conf.setBoolean("dfs.permissions.enabled", false);

    DefaultMetricsSystem.setMiniClusterMode(true); // formatting and serving have metrics of one name
    NameNode.format(conf);
    NameNode name = NameNode.createNameNode(new String[0], conf);
    String url = "hdfs://127.0.0.1:" + name.getNameNodeAddress().getPort();
    FileSystem.setDefaultUri(conf, url);
    DataNode data = DataNode.instantiateDataNode(new String[0], conf);
    data.runDatanodeDaemon();
    while (!data.isDatanodeFullyStarted() || name.getNamesystem().getNumLiveDataNodes() == 0) {
      Thread.sleep(50);
    }
    Path part = Files.writeString(dir.resolve("url.part"), url);
    Files.move(part, dir.resolve("url"), StandardCopyOption.ATOMIC_MOVE);
    name.join();
  }
}
