package forebay.hadoop;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.FileOutputCommitter;
import org.apache.hadoop.mapred.FileOutputFormat;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.JobContext;
import org.apache.hadoop.mapred.TaskAttemptContext;
import org.apache.hadoop.mapreduce.JobStatus;

/**
 * The committer for the older interface, {@code mapred.output.committer.class}, which does not look
 * for one by scheme. On {@code bb://} it is {@link ForebayCommitter}, elsewhere the classic one.
 */
public class ForebayMapredCommitter extends FileOutputCommitter {
  private ForebayCommitter committer; // guarded by this

  /** Is called by Hadoop. */
  public ForebayMapredCommitter() {}

  private static Path output(JobConf conf) throws IOException {
    Path output = FileOutputFormat.getOutputPath(conf);
    boolean ours = output != null && output.getFileSystem(conf) instanceof ForebayFileSystem;
    return ours ? output : null;
  }

  /** Returns the committer of an output on bb://, or null if it is elsewhere. */
  private synchronized ForebayCommitter ours(JobContext c) throws IOException {
    if (committer == null) {
      Path output = output(c.getJobConf());
      committer = output == null ? null : new ForebayCommitter(output, c);
    }
    return committer;
  }

  private synchronized ForebayCommitter ours(TaskAttemptContext c) throws IOException {
    if (committer == null) {
      Path output = output(c.getJobConf());
      committer = output == null ? null : new ForebayCommitter(output, c);
    }
    return committer;
  }

  @Override
  public Path getTaskAttemptPath(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    return f == null ? super.getTaskAttemptPath(c) : f.getWorkPath();
  }

  @Override
  public Path getWorkPath(TaskAttemptContext c, Path output) throws IOException {
    ForebayCommitter f = ours(c);
    return f == null ? super.getWorkPath(c, output) : f.getWorkPath();
  }

  @Override
  public void setupJob(JobContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.setupJob(c);
    } else {
      f.setupJob(c);
    }
  }

  @Override
  public void commitJob(JobContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.commitJob(c);
    } else {
      f.commitJob(c);
    }
  }

  @Override
  @SuppressWarnings("deprecation") // callers of old call it
  public void cleanupJob(JobContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.cleanupJob(c);
    } else {
      f.cleanupJob(c);
    }
  }

  @Override
  public void abortJob(JobContext c, int runState) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.abortJob(c, runState);
    } else {
      f.abortJob(c, JobStatus.State.FAILED);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.setupTask(c);
    } else {
      f.setupTask(c);
    }
  }

  @Override
  public void commitTask(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.commitTask(c);
    } else {
      f.commitTask(c);
    }
  }

  @Override
  public void abortTask(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.abortTask(c);
    } else {
      f.abortTask(c);
    }
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    return f == null ? super.needsTaskCommit(c) : f.needsTaskCommit(c);
  }

  @Override
  public boolean isCommitJobRepeatable(JobContext c) throws IOException {
    ForebayCommitter f = ours(c);
    return f == null ? super.isCommitJobRepeatable(c) : f.isCommitJobRepeatable(c);
  }

  @Override
  public void recoverTask(TaskAttemptContext c) throws IOException {
    ForebayCommitter f = ours(c);
    if (f == null) {
      super.recoverTask(c);
    } else {
      f.recoverTask(c);
    }
  }
}
