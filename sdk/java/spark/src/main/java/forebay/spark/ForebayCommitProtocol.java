package forebay.spark;

import forebay.hadoop.ForebayCommitter;
import forebay.hadoop.ForebayFileSystem;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.task.JobContextImpl;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Commits Spark SQL's output to {@code bb://} in one step, with the files that it replaces. Set
 * {@code spark.sql.sources.commitProtocolClass} to this class. Outputs elsewhere are Spark's
 * business as usual.
 *
 * <pre>
 *   overwrite                     old files go with the commit, instead of before the job
 *   overwrite of partitions       the partitions that were written to are replaced by the commit
 *   partitions with a location    a transaction for each, which is committed before that of the
 *     of their own, elsewhere     destination: each is one step, all of them together are not
 * </pre>
 */
public class ForebayCommitProtocol extends SQLHadoopMapReduceCommitProtocol {
  private static final long serialVersionUID = 1;
  // The driver gets a location only when a task is committed, so it cannot renew leases of them.
  private static final String LOCATION_LEASE = "24h";
  private static final String HERE = ".";

  private final String job;
  private final String destination;
  private final boolean dynamic;
  private final boolean ours;
  // Paths that Spark deletes with the job: relative to the destination, and elsewhere.
  private final TreeSet<String> replaced = new TreeSet<>();
  private final TreeSet<String> replacedLocations = new TreeSet<>();
  private transient ForebayCommitter committer;
  private transient Set<String> partitions; // of the task
  private transient Map<String, ForebayCommitter> locations; // of the task

  /** Is called by Spark, on the driver. Executors get a copy. */
  public ForebayCommitProtocol(String job, String destination, boolean dynamicPartitionOverwrite) {
    super(job, destination, dynamicPartitionOverwrite && !ours(destination));
    this.job = job;
    this.destination = destination;
    dynamic = dynamicPartitionOverwrite;
    ours = ours(destination);
  }

  private static boolean ours(String path) {
    return path != null && ForebayFileSystem.SCHEME.equals(new Path(path).toUri().getScheme());
  }

  @Override
  public OutputCommitter setupCommitter(TaskAttemptContext c) {
    if (!ours) {
      return super.setupCommitter(c);
    }
    try {
      committer = new ForebayCommitter(new Path(destination), known(c, Map.of()));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return committer;
  }

  /** Returns the context with the job's identifier, and some more. */
  private TaskAttemptContext known(TaskAttemptContext c, Map<String, String> more) {
    return new TaskAttemptContextImpl(known(c.getConfiguration(), more), c.getTaskAttemptID());
  }

  private JobContext known(JobContext c, Map<String, String> more) {
    return new JobContextImpl(known(c.getConfiguration(), more), c.getJobID());
  }

  private Configuration known(Configuration from, Map<String, String> more) {
    Configuration conf = new Configuration(from);
    conf.set(ForebayCommitter.KEY, job);
    more.forEach(conf::set);
    return conf;
  }

  /**
   * Returns a path below the destination, relative to it ("." for itself), or null for any other.
   */
  private String relative(String path) {
    String dir = new Path(destination).toUri().toString();
    String to = new Path(path).toUri().toString();
    if (to.equals(dir)) {
      return HERE;
    }
    return to.startsWith(dir + "/") ? new Path(to.substring(dir.length() + 1)).toString() : null;
  }

  @Override
  public void setupTask(TaskAttemptContext c) {
    partitions = new TreeSet<>();
    locations = new TreeMap<>();
    super.setupTask(c);
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext c, Option<String> dir, FileNameSpec name) {
    if (ours && dynamic) {
      if (dir.isEmpty()) {
        throw new IllegalStateException(
            destination + ": partitions are to be replaced, and the output has none");
      }
      partitions.add(dir.get());
    }
    return super.newTaskTempFile(c, dir, name);
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext c, String dir, FileNameSpec name) {
    if (!ours) {
      return super.newTaskTempFileAbsPath(c, dir, name);
    }
    String relative = relative(dir);
    if (relative != null && !relative.equals(HERE)) {
      return newTaskTempFile(c, Option.apply(relative), name);
    }
    try {
      Path work = location(dir, c).getWorkPath();
      return new Path(work, getFilename(c, name)).toString();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private ForebayCommitter location(String dir, TaskAttemptContext c) throws IOException {
    ForebayCommitter found = locations.get(dir);
    if (found == null) {
      TaskAttemptContext leased = known(c, Map.of(ForebayCommitter.LEASE, LOCATION_LEASE));
      found = new ForebayCommitter(new Path(dir), leased);
      locations.put(dir, found);
    }
    return found;
  }

  @Override
  public TaskCommitMessage commitTask(TaskAttemptContext c) {
    TaskCommitMessage plain = super.commitTask(c); // queries Spark's coordinator, and adopts
    if (!ours) {
      return plain;
    }
    try {
      for (ForebayCommitter l : locations.values()) {
        l.adopt(c);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    boolean adopted = partitions.isEmpty() || committer.hasAdopted();
    return new TaskCommitMessage(
        new Written(new TreeSet<>(partitions), new TreeSet<>(locations.keySet()), adopted));
  }

  @Override
  public void abortTask(TaskAttemptContext c) {
    super.abortTask(c);
    if (!ours) {
      return;
    }
    for (ForebayCommitter l : locations.values()) {
      try {
        l.abortTask(c);
      } catch (IOException e) {
        log().warn("{}: {} is not removed", l, c.getTaskAttemptID(), e);
      }
    }
  }

  /**
   * Delays Spark's deletions until the job is committed. Without that, they come before it begins.
   */
  @Override
  public boolean deleteWithJob(FileSystem fs, Path path, boolean recursive) {
    String full = fs.makeQualified(path).toString();
    if (!ours || !recursive || !ours(full)) {
      return super.deleteWithJob(fs, path, recursive);
    }
    String relative = relative(full);
    if (relative == null) {
      replacedLocations.add(full);
    } else {
      replaced.add(relative);
    }
    return true;
  }

  @Override
  public void commitJob(JobContext c, Seq<TaskCommitMessage> tasks) {
    if (!ours) {
      super.commitJob(c, tasks);
      return;
    }
    Set<String> elsewhere = new TreeSet<>(replacedLocations);
    Set<String> here = new TreeSet<>(replaced);
    boolean sure = true;
    for (Iterator<TaskCommitMessage> i = tasks.iterator(); i.hasNext(); ) {
      Written w = (Written) i.next().obj();
      elsewhere.addAll(w.locations());
      if (w.adopted()) {
        here.addAll(w.partitions());
      } else {
        sure = false;
      }
    }
    try {
      if (dynamic && !sure) {
        here.addAll(committer.adoptedDirectories());
      }
      for (String dir : elsewhere) {
        commitLocation(c, dir);
      }
      committer.replace(here);
      committer.commitJob(c);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void commitLocation(JobContext c, String dir) throws IOException {
    Map<String, String> settings =
        Map.of(
            ForebayCommitter.LEASE, LOCATION_LEASE,
            FileOutputCommitter.SUCCESSFUL_JOB_OUTPUT_DIR_MARKER, "false");
    JobContext unmarked = known(c, settings);
    ForebayCommitter l = new ForebayCommitter(new Path(dir), unmarked);
    if (dynamic || replacedLocations.contains(dir)) {
      l.replace(List.of(HERE));
    }
    l.commitJob(unmarked);
  }

  /**
   * Aborts the job. Its files at locations in other buffers are removed when their lease expires.
   */
  @Override
  public void abortJob(JobContext c) {
    super.abortJob(c);
    if (!ours || committer == null) {
      return;
    }
    try {
      committer.abortEverywhere();
    } catch (IOException e) {
      log().warn("{}: not all that the job wrote is removed", committer, e);
    }
  }
}
