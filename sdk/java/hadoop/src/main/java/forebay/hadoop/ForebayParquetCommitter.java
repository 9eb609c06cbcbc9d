package forebay.hadoop;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;
import org.apache.parquet.hadoop.ParquetOutputCommitter;

/**
 * The committer of Parquet's outputs, for {@code spark.sql.parquet.output.committer.class} and
 * {@code parquet.output.committer.class}. On {@code bb://} it is {@link ForebayCommitter},
 * elsewhere the one bound to the scheme there. Summaries of the metadata, where they are requested,
 * are written before _SUCCESS.
 */
public class ForebayParquetCommitter extends ParquetOutputCommitter {
  private final PathOutputCommitter committer;

  /** Is called by Parquet's output format, and by Spark. */
  public ForebayParquetCommitter(Path output, TaskAttemptContext c) throws IOException {
    super(output, c);
    committer = committer(output, c);
  }

  private static PathOutputCommitter committer(Path output, TaskAttemptContext c)
      throws IOException {
    if (output != null
        && output.getFileSystem(c.getConfiguration()) instanceof ForebayFileSystem) {
      return new ForebayCommitter(output, c) {
        @Override
        protected void beforeSuccess(JobContext job) {
          summarise(job, output);
        }
      };
    }
    return PathOutputCommitterFactory.createCommitter(output, c);
  }

  private static void summarise(JobContext c, Path output) {
    writeMetaDataFile(c.getConfiguration(), output); // if configured
  }

  @Override
  public Path getWorkPath() throws IOException {
    return committer.getWorkPath();
  }

  @Override
  public void setupJob(JobContext c) throws IOException {
    committer.setupJob(c);
  }

  @Override
  public void commitJob(JobContext c) throws IOException {
    committer.commitJob(c);
    if (!(committer instanceof ForebayCommitter)) {
      summarise(c, getOutputPath());
    }
  }

  @Override
  public void abortJob(JobContext c, JobStatus.State state) throws IOException {
    committer.abortJob(c, state);
  }

  @Override
  @SuppressWarnings("deprecation") // callers of old call it
  public void cleanupJob(JobContext c) throws IOException {
    committer.cleanupJob(c);
  }

  @Override
  public void setupTask(TaskAttemptContext c) throws IOException {
    committer.setupTask(c);
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext c) throws IOException {
    return committer.needsTaskCommit(c);
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext c, Path dir) throws IOException {
    return committer.needsTaskCommit(c);
  }

  @Override
  public void commitTask(TaskAttemptContext c) throws IOException {
    committer.commitTask(c);
  }

  @Override
  public void commitTask(TaskAttemptContext c, Path dir) throws IOException {
    committer.commitTask(c);
  }

  @Override
  public void abortTask(TaskAttemptContext c) throws IOException {
    committer.abortTask(c);
  }

  @Override
  public void abortTask(TaskAttemptContext c, Path dir) throws IOException {
    committer.abortTask(c);
  }

  @Override
  @SuppressWarnings("deprecation") // Hadoop calls it besides the newer one
  public boolean isRecoverySupported() {
    return committer.isRecoverySupported();
  }

  @Override
  public boolean isCommitJobRepeatable(JobContext c) throws IOException {
    return committer.isCommitJobRepeatable(c);
  }

  @Override
  public void recoverTask(TaskAttemptContext c) throws IOException {
    committer.recoverTask(c);
  }

  @Override
  public String toString() {
    return "ForebayParquetCommitter{" + committer + "}";
  }
}
