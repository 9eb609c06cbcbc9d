package forebay.hadoop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;

/**
 * Names of a job and its tasks in a transaction, the same in every process of the job.
 *
 * @param job the job's identifier
 * @param source the source of it: a configuration key, or "JobID"
 */
record JobKey(String job, String source) {
  private static final String SPARK_UUID = "spark.sql.sources.writeJobUUID";
  private static final int LONGEST = 1 << 10; // of a transaction's key

  static JobKey of(JobContext c) throws IOException {
    for (String source : new String[] {ForebayCommitter.KEY, SPARK_UUID}) {
      String job = c.getConfiguration().getTrimmed(source, "");
      if (!job.isEmpty()) {
        return new JobKey(job, source);
      }
    }
    if (c.getJobID() == null) {
      throw new IOException("the job has no id, by which its tasks know each other: set " + ForebayCommitter.KEY);
    }
    return new JobKey(c.getJobID().toString(), "JobID");
  }

  /** Returns the key of the job's transaction into a directory, since one job may write several. */
  String into(String destination) {
    String key = prefix() + destination;
    return key.getBytes(StandardCharsets.UTF_8).length <= LONGEST ? key : prefix() + sum(destination);
  }

  /** Returns the common prefix of all keys of the job. */
  String prefix() {
    return job + "@";
  }

  private static String sum(String text) {
    try {
      MessageDigest d = MessageDigest.getInstance("SHA-256");
      return HexFormat.of().formatHex(d.digest(text.getBytes(StandardCharsets.UTF_8)));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every JDK has it
    }
  }

  /**
   * Returns a task's name, without the job, since not all processes of Spark have the same id for
   * it.
   */
  static String task(TaskAttemptID id) {
    TaskID task = id.getTaskID();
    return TaskID.getRepresentingCharacter(task.getTaskType()) + "_" + task.getId();
  }

  static String attempt(TaskAttemptID id) {
    return id.toString();
  }
}
