package forebay.apps.spark;

import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** Who commits the output of jobs. */
enum Committer {
  /** Hadoop's FileOutputCommitter, with renames, below Spark's own protocol. */
  CLASSIC(
      Map.of(
          "mapreduce.outputcommitter.factory.scheme.bb",
          "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"));

  private final Map<String, String> settings;

  Committer(Map<String, String> settings) {
    this.settings = settings;
  }

  /** Returns the settings of a session whose output it commits. */
  Map<String, String> settings() {
    return settings;
  }

  /** Says from a job's _SUCCESS who committed it: ours names itself, the classic one leaves it empty. */
  static Committer of(Configuration conf, String output) throws IOException {
    Path success = new Path(output, "_SUCCESS");
    FileStatus status = success.getFileSystem(conf).getFileStatus(success);
    if (status.getLen() == 0) {
      return CLASSIC;
    }
    throw new IOException(success + " names no committer that is known");
  }
}
