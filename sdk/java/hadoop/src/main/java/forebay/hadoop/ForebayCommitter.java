package forebay.hadoop;

import forebay.client.Buffer;
import forebay.client.DrainReport;
import forebay.client.Entry;
import forebay.client.ForebayException;
import forebay.client.Kind;
import forebay.client.Txn;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BiPredicate;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Commits a job's output in one step, by a transaction of its buffer (docs/transactions.md):
 *
 * <pre>
 *   setupJob      Begin, with a key that all processes of the job have; renewed in the background
 *   work path     .txn/ID/attempt/TASK/ATTEMPT, which is hidden; made at its first use
 *   commitTask    Adopt: the first attempt of a task is its output
 *   abortTask     removes the attempt, unless it was adopted
 *   commitJob     Commit: readers see all of the output. Then, if the durability is "flushed", waits
 *                 until the store has it; then writes _SUCCESS
 *   abortJob      Abort
 * </pre>
 *
 * It is a {@code FileOutputCommitter}, because Spark writes to the work path of those alone, and in
 * place with any other. Every step may be repeated, by any process of the job. It may be used
 * concurrently.
 */
public class ForebayCommitter extends FileOutputCommitter {
  /** When commitJob returns, and _SUCCESS is written: "flushed" or "resident". */
  public static final String DURABILITY = "forebay.committer.durability";

  /** The job's identifier. Without it, Spark's UUID of the write, or the job's id. */
  public static final String KEY = "forebay.committer.key";

  /** The time that a job's output outlives a driver that has died, at least. */
  public static final String LEASE = "forebay.committer.lease";

  private static final Logger LOG = LoggerFactory.getLogger(ForebayCommitter.class);
  private static final String FLUSHED = "flushed";
  private static final String RESIDENT = "resident";
  private static final long DEFAULT_LEASE_MS = TimeUnit.MINUTES.toMillis(10);
  private static final String DISCARDED = "discarded"; // a task that is none
  private static final int OWNERS_ALONE = 0700;

  private final Path output; // qualified; null: the job has none
  private final ForebayFileSystem fs;
  private final String destination; // of the output, in the buffer
  private final JobKey key;
  private final Duration lease;
  private final TaskAttemptID own; // null: it is not a task's
  private final Set<String> replaced = new TreeSet<>(); // guards itself
  private Txn txn; // guarded by this
  private Path work; // guarded by this
  private Background.Job renewal = () -> {}; // guarded by this
  private volatile boolean adopted;

  /** Is called by output formats, for a task, and for the job with a task that is none. */
  public ForebayCommitter(Path output, TaskAttemptContext c) throws IOException {
    this(output, c, c.getTaskAttemptID());
  }

  /** For callers without a task. */
  public ForebayCommitter(Path output, JobContext c) throws IOException {
    this(output, c, null);
  }

  private ForebayCommitter(Path output, JobContext c, TaskAttemptID own) throws IOException {
    super(output, c);
    this.own = own;
    this.output = super.getOutputPath();
    if (this.output == null) {
      fs = null;
      destination = null;
      key = null;
      lease = null;
      return;
    }
    FileSystem found = output.getFileSystem(c.getConfiguration());
    if (!(found instanceof ForebayFileSystem)) {
      throw new IOException(
          output + ": its file system is " + found.getClass().getName() + ", which has no transactions");
    }
    fs = (ForebayFileSystem) found;
    destination = fs.inBuffer(output).substring(1);
    if (destination.isEmpty()) {
      throw new IOException(
          output + ": the root of a buffer cannot be a job's output; name a directory below it");
    }
    key = JobKey.of(c);
    lease =
        Duration.ofMillis(
            c.getConfiguration().getTimeDuration(LEASE, DEFAULT_LEASE_MS, TimeUnit.MILLISECONDS));
  }

  /** A step of the protocol. */
  private interface Step<T> {
    T run() throws IOException;
  }

  /** Runs a step that may take long, and reports progress meanwhile. */
  private <T> T wait(JobContext c, Step<T> step) throws IOException {
    try (Background.Job progress = Background.progress(c)) {
      return step.run();
    } catch (IOException e) {
      throw Errors.translate(output, e);
    }
  }

  /** Returns the job's transaction, which is begun if it is not there. */
  private synchronized Txn txn() throws IOException {
    if (txn == null) {
      try {
        txn = fs.buffer().begin(new Txn.Spec(destination, key.into(destination), lease));
      } catch (IOException e) {
        throw Errors.translate(output, e);
      }
    }
    return txn;
  }

  private Path path(String inBuffer) {
    return fs.makeQualified(new Path("/" + inBuffer));
  }

  /**
   * Returns the directory that the attempt writes below, which is there, or null if it is not a
   * task's.
   */
  @Override
  public synchronized Path getWorkPath() throws IOException {
    if (output != null && own != null && work == null) {
      try {
        work = path(makeWork(own));
      } catch (IOException e) {
        throw Errors.translate(output, e);
      }
    }
    return work;
  }

  private String makeWork(TaskAttemptID id) throws IOException {
    Txn t = txn();
    String dir = attemptDir(id);
    try {
      fs.buffer().mkdirs(dir, OWNERS_ALONE);
      return dir;
    } catch (IOException e) {
      if (ForebayException.kindOf(e) != Kind.CANCELLED || t.info().state() != Txn.State.OPEN) {
        throw e;
      }
    }
    // Another attempt's output is the task's. It was reported failed after it had committed. This
    // one has to come to its end nevertheless, or else the job fails. So it writes where nothing is
    // adopted.
    LOG.warn("{}: {} is too late, and its output is discarded", output, id);
    String nowhere = t.path(DISCARDED, JobKey.attempt(id));
    fs.buffer().mkdirs(nowhere, OWNERS_ALONE);
    return nowhere;
  }

  private String attemptDir(TaskAttemptID id) throws IOException {
    return txn().path(JobKey.task(id), JobKey.attempt(id));
  }

  @Override
  public Path getTaskAttemptPath(TaskAttemptContext c) {
    try {
      return output == null ? null : path(attemptDir(c.getTaskAttemptID()));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the directory of adopted output until the job is committed. All tasks share it. */
  @Override
  public Path getCommittedTaskPath(TaskAttemptContext c) {
    try {
      return output == null ? null : path(txn().output());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public Path getJobAttemptPath(JobContext c) {
    Path adopted = getCommittedTaskPath(null);
    return adopted == null ? null : adopted.getParent();
  }

  /** Begins the job's transaction. A restarted application continues it. */
  @Override
  public void setupJob(JobContext c) throws IOException {
    if (output == null) {
      LOG.warn("The job has no output path: there is nothing to set up");
      return;
    }
    durability(c.getConfiguration());
    Txn t = txn();
    Txn.State state = wait(c, t::renew).state();
    if (state.isDecided()) {
      LOG.info("{}: job {} has been committed already", output, key.job());
      return;
    }
    LOG.info("{}: job {} is transaction {}", output, key.job(), t.id());
    synchronized (this) {
      renewal.close();
      renewal = Background.renew(t, lease, this);
    }
  }

  /** Does nothing, since {@link #getWorkPath} makes the attempt's directory. */
  @Override
  public void setupTask(TaskAttemptContext c) {}

  /** Reports whether the attempt may have written something, and no other was faster. */
  @Override
  public boolean needsTaskCommit(TaskAttemptContext c) throws IOException {
    return output != null && exists(attemptDir(c.getTaskAttemptID()));
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext c, Path dir) throws IOException {
    return needsTaskCommit(c);
  }

  private boolean exists(String path) throws IOException {
    try {
      fs.buffer().stat(path);
      return true;
    } catch (IOException e) {
      if (ForebayException.kindOf(e) == Kind.NOT_FOUND) {
        return false;
      }
      throw Errors.translate(output, e);
    }
  }

  @Override
  public void commitTask(TaskAttemptContext c) throws IOException {
    adopt(c);
  }

  @Override
  public void commitTask(TaskAttemptContext c, Path dir) throws IOException {
    adopt(c);
  }

  /**
   * Makes the attempt's files the output of its task, unless another attempt's are. Then this one's
   * files are removed, and that is no error. If a second attempt was authorised because the first
   * was reported failed after it had committed, the task's output is there once, as it should be.
   * It fails if the job was aborted, or is being committed without this task.
   *
   * @return whether the attempt is the winner
   */
  public boolean adopt(TaskAttemptContext c) throws IOException {
    if (output == null) {
      return true;
    }
    Txn t = txn();
    String task = JobKey.task(c.getTaskAttemptID());
    String attempt = JobKey.attempt(c.getTaskAttemptID());
    String winner = wait(c, () -> t.adopt(task, attempt));
    if (winner.equals(attempt)) {
      adopted = true;
      return true;
    }
    LOG.warn("{}: the output of task {} is that of {}; {} was too late", output, task, winner, attempt);
    // The winner may have died before all it has written was in the output.
    wait(c, () -> t.adopt(task, winner));
    return false;
  }

  /** Reports whether this committer's attempt was adopted, from its own calls. */
  public boolean hasAdopted() {
    return adopted;
  }

  @Override
  public void abortTask(TaskAttemptContext c) throws IOException {
    if (output == null) {
      return;
    }
    try {
      fs.buffer().remove(attemptDir(c.getTaskAttemptID()), true);
    } catch (IOException e) {
      Kind kind = ForebayException.kindOf(e);
      if (kind == Kind.CANCELLED) {
        // The attempt was adopted, and stays, or it lost, or the job is over, and it is gone.
        LOG.info("{}: {} has nothing to abort: {}", output, c.getTaskAttemptID(), e.getMessage());
      } else if (kind != Kind.NOT_FOUND) {
        throw Errors.translate(output, e);
      }
    }
  }

  @Override
  public void abortTask(TaskAttemptContext c, Path dir) throws IOException {
    abortTask(c);
  }

  @Override
  public boolean isRecoverySupported() {
    return true;
  }

  /** Makes an attempt, which was committed under an earlier application master, the output. */
  @Override
  public void recoverTask(TaskAttemptContext c) throws IOException {
    if (output == null) {
      return;
    }
    try {
      adopt(c);
    } catch (IOException e) {
      if (ForebayException.kindOf(e) != Kind.BUSY || !info(c).state().isDecided()) {
        throw e;
      }
      // The job was committed before its master died, so its output is decided.
    }
  }

  private Txn.Info info(JobContext c) throws IOException {
    Txn t = txn();
    return wait(c, t::info);
  }

  /** Returns true, since a repeated decision has the same result. */
  @Override
  public boolean isCommitJobRepeatable(JobContext c) {
    return true;
  }

  /**
   * Makes the commit remove, in the same step, the former entries of directories.
   *
   * @param directories relative to the output; "." is the output itself
   */
  public void replace(Collection<String> directories) {
    synchronized (replaced) {
      replaced.addAll(directories);
    }
  }

  /** Returns the directories, relative to the output, in which files lie that were adopted so far. */
  public Set<String> adoptedDirectories() throws IOException {
    Set<String> all = new TreeSet<>();
    if (output != null) {
      try {
        walk(
            txn().output(),
            "",
            (dir, name) -> {
              all.add(dir.isEmpty() ? "." : dir);
              return true;
            });
      } catch (IOException e) {
        throw Errors.translate(output, e);
      }
    }
    return all;
  }

  /** Calls visit with the directory and name of files, until it returns false. */
  private boolean walk(String root, String dir, BiPredicate<String, String> visit)
      throws IOException {
    String from = dir.isEmpty() ? root : root + "/" + dir;
    String after = "";
    Buffer.Page page;
    do {
      page = fs.buffer().list(from, after, 0);
      for (Entry e : page.entries()) {
        after = e.name();
        if (e.directory()) {
          if (!walk(root, dir.isEmpty() ? after : dir + "/" + after, visit)) {
            return false;
          }
        } else if (!visit.test(dir, after)) {
          return false;
        }
      }
    } while (page.more());
    return true;
  }

  /** Returns some names of the uncommitted output, or none if it is committed already. */
  private List<String> sample(Txn t) throws IOException {
    List<String> names = new ArrayList<>();
    try {
      walk(
          t.output(),
          "",
          (dir, name) -> {
            names.add(new Path(output, dir.isEmpty() ? name : dir + "/" + name).toUri().getPath());
            return names.size() < SuccessFile.MOST_NAMES;
          });
    } catch (IOException e) {
      if (ForebayException.kindOf(e) != Kind.NOT_FOUND) {
        throw Errors.translate(output, e);
      }
    }
    return names;
  }

  /** Commits all that was adopted, in one step. {@link #DURABILITY} decides when it returns. */
  @Override
  public void commitJob(JobContext c) throws IOException {
    if (output == null) {
      LOG.warn("The job has no output path: there is nothing to commit");
      return;
    }
    Configuration conf = c.getConfiguration();
    boolean flushed = durability(conf).equals(FLUSHED);
    SuccessFile success = new SuccessFile(key, flushed ? FLUSHED : RESIDENT);
    Txn t = txn();
    success.names(sample(t));
    List<String> directories;
    synchronized (replaced) {
      directories = List.copyOf(replaced);
    }
    success.replaced(wait(c, () -> t.commit(directories, true)).replace());
    success.committed();
    stop();
    LOG.info("{}: job {} is committed", output, key.job());
    beforeSuccess(c);
    if (flushed) {
      wait(c, () -> flush(destination));
      success.flushed();
    }
    if (conf.getBoolean(SUCCESSFUL_JOB_OUTPUT_DIR_MARKER, true)) {
      success.write(fs, destination + "/" + SUCCEEDED_FILE_NAME, t.id());
      if (flushed) {
        wait(c, () -> flush(destination + "/" + SUCCEEDED_FILE_NAME));
      }
    }
  }

  /** Is called when the output is visible, before _SUCCESS is written. */
  protected void beforeSuccess(JobContext c) throws IOException {}

  private synchronized void stop() {
    renewal.close();
  }

  /** Returns the state that a job must reach before it counts as committed. */
  private String durability(Configuration conf) throws IOException {
    String wanted = conf.getTrimmed(DURABILITY, "");
    if (!wanted.isEmpty() && !wanted.equals(FLUSHED) && !wanted.equals(RESIDENT)) {
      throw new IOException(DURABILITY + " is " + wanted + ": it is " + FLUSHED + " or " + RESIDENT);
    }
    if (wanted.equals(RESIDENT)) {
      return RESIDENT;
    }
    boolean store = fs.hasStore();
    if (!store && wanted.equals(FLUSHED)) {
      throw new IOException(
          output + ": " + DURABILITY + " is flushed, and the buffer has no store behind it");
    }
    return store ? FLUSHED : RESIDENT;
  }

  /** Returns when a path, with everything below it, is on the store. */
  private Void flush(String path) throws IOException {
    DrainReport r = fs.buffer().drain(path);
    if (!r.failed().isEmpty()) {
      throw new IOException(
          output + ": the job is committed, and not all of it could be flushed: " + r.failed().get(0));
    }
    if (!r.held().isEmpty()) {
      LOG.warn("{}: a keep pattern of the buffer keeps {} from the store", output, r.held());
    }
    return null;
  }

  @Override
  @SuppressWarnings("deprecation") // callers of old call it
  public void cleanupJob(JobContext c) throws IOException {
    abort(c);
  }

  @Override
  public void abortJob(JobContext c, JobStatus.State state) throws IOException {
    abort(c);
  }

  private void abort(JobContext c) throws IOException {
    stop();
    if (output == null) {
      return;
    }
    Configuration conf = c.getConfiguration();
    if (conf.getBoolean(FILEOUTPUTCOMMITTER_CLEANUP_SKIPPED, false)) {
      LOG.info("{}: what job {} has written stays until its lease has run out", output, key.job());
      return;
    }
    try {
      wait(c, txn()::abort);
    } catch (IOException e) {
      if (ForebayException.kindOf(e) == Kind.BUSY) {
        LOG.warn("{}: job {} is committed, and cannot be aborted any more", output, key.job());
      } else if (conf.getBoolean(FILEOUTPUTCOMMITTER_CLEANUP_FAILURES_IGNORED, false)) {
        LOG.warn("{}: job {} could not be aborted", output, key.job(), e);
      } else if (!(e instanceof FileNotFoundException)) {
        throw e;
      }
    }
  }

  /** Aborts the job's uncommitted transactions into any directory of the buffer. */
  public void abortEverywhere() throws IOException {
    if (output == null) {
      return;
    }
    try {
      for (Txn.Info t : fs.buffer().txns()) {
        boolean undecided = t.state() == Txn.State.OPEN || t.state() == Txn.State.COMMITTING;
        if (undecided && t.key().startsWith(key.prefix())) {
          fs.buffer().txn(t.id()).abort();
        }
      }
    } catch (IOException e) {
      throw Errors.translate(output, e);
    }
  }

  @Override
  public String toString() {
    return "ForebayCommitter{" + output + (key == null ? "" : ", job " + key.job()) + "}";
  }
}
