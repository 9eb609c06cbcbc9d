package forebay.apps.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * The output of a job in a folder: its rows in order, the folders that hold them, and the names of
 * files and folders that are no data.
 */
record Output(List<String> rows, List<String> folders, List<String> others) {

  /** Reads a table, with Spark, in a format of Spark's. */
  static Output read(SparkSession spark, String format, String address) throws IOException {
    List<String> rows = new ArrayList<>();
    for (Row row : spark.read().format(format).load(address).collectAsList()) {
      rows.add(row.toString());
    }
    rows.sort(null);

    Path root = new Path(address);
    Configuration conf = spark.sessionState().newHadoopConf();
    FileSystem fs = root.getFileSystem(conf);
    String prefix = fs.makeQualified(root).toUri().getPath();
    TreeSet<String> folders = new TreeSet<>();
    TreeSet<String> others = new TreeSet<>();
    RemoteIterator<LocatedFileStatus> files = fs.listFiles(root, true);
    while (files.hasNext()) {
      Path file = files.next().getPath();
      if (file.getName().startsWith("part-")) {
        folders.add(file.getParent().toUri().getPath().substring(prefix.length()));
      } else {
        others.add(file.toUri().getPath().substring(prefix.length()));
      }
    }
    return new Output(rows, List.copyOf(folders), List.copyOf(others));
  }
}
