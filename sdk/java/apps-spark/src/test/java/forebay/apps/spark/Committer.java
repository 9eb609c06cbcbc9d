package forebay.apps.spark;

import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.ManifestSuccessData;

/** The committers of the output of jobs to {@code bb://}. */
enum Committer {
  /** Hadoop's FileOutputCommitter, with renames. */
  CLASSIC(
      Map.of(
          "mapreduce.outputcommitter.factory.scheme.bb",
          "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"),
      ""),

  /** The one that our jar binds to the scheme. Parquet needs a setting, as everywhere. */
  OURS(
      Map.of(
          "spark.sql.parquet.output.committer.class", "forebay.hadoop.ForebayParquetCommitter"),
      "forebay.hadoop.ForebayCommitter"),

  /** The same below our commit protocol, which replaces overwritten files in the same step. */
  OURS_WITH_PROTOCOL(
      Map.of("spark.sql.sources.commitProtocolClass", "forebay.spark.ForebayCommitProtocol"),
      "forebay.hadoop.ForebayCommitter");

  private final Map<String, String> settings;
  private final String named;

  Committer(Map<String, String> settings, String named) {
    this.settings = settings;
    this.named = named;
  }

  /** Returns the settings of a session whose output it commits. */
  Map<String, String> settings() {
    return settings;
  }

  /** Returns its name in a job's _SUCCESS. */
  String named() {
    return named;
  }

  /** Returns the committer's name in a job's _SUCCESS, which the classic one leaves empty. */
  static String of(Configuration conf, String output) throws IOException {
    Path success = new Path(output, "_SUCCESS");
    FileStatus status = success.getFileSystem(conf).getFileStatus(success);
    if (status.getLen() == 0) {
      return "";
    }
    return ManifestSuccessData.load(success.getFileSystem(conf), success).getCommitter();
  }
}
