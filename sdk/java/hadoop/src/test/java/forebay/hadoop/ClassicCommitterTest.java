package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * The committer that users have in their configurations, FileOutputCommitter of the mapreduce and
 * of the older mapred interface, both algorithms: the scenarios of Hadoop's own tests of it, for
 * the local file system alone.
 */
@Timeout(120)
class ClassicCommitterTest {
  private static final AtomicInteger JOBS = new AtomicInteger();

  private FileSystem fs;
  private Path destination;

  /** Which of the two interfaces. */
  enum Api {
    MAPREDUCE,
    MAPRED
  }

  /** Every interface with every algorithm. */
  static Stream<Arguments> all() {
    return Stream.of(Api.values())
        .flatMap(api -> Stream.of(1, 2).map(version -> Arguments.of(api, version)));
  }

  @BeforeEach
  void open() throws Exception {
    Daemon.get().start();
    fs = TestBuffer.fileSystem("classic");
    destination = fs.makeQualified(new Path("/out" + JOBS.incrementAndGet()));
  }

  /** A job's committer, as one attempt of the application has it. */
  private final class Job {
    final Api api;
    final int version;
    final int application;
    final JobConf conf;

    Job(Api api, int version, int application) {
      this.api = api;
      this.version = version;
      this.application = application;
      conf = new JobConf(TestBuffer.conf("classic"));
      conf.setInt(FileOutputCommitter.FILEOUTPUTCOMMITTER_ALGORITHM_VERSION, version);
      conf.setInt(MRJobConfig.APPLICATION_ATTEMPT_ID, application);
      org.apache.hadoop.mapred.FileOutputFormat.setOutputPath(conf, destination);
    }

    JobContext context() {
      return api == Api.MAPRED
          ? new OldJob(conf, attempt(0).getJobID())
          : new org.apache.hadoop.mapreduce.task.JobContextImpl(conf, attempt(0).getJobID());
    }

    TaskAttemptContext task(int task) {
      return api == Api.MAPRED
          ? new OldTask(conf, attempt(task))
          : new org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl(conf, attempt(task));
    }

    OutputCommitter committer() throws IOException {
      return api == Api.MAPRED
          ? new org.apache.hadoop.mapred.FileOutputCommitter()
          : new FileOutputCommitter(destination, context());
    }

    Path pending() {
      return new Path(destination, FileOutputCommitter.PENDING_DIR_NAME);
    }

    Path work(int task) {
      return new Path(pending(), application + "/_temporary/" + attempt(task));
    }

    Path committed(int task) {
      return new Path(pending(), application + "/" + attempt(task).getTaskID());
    }

    /** Runs one task up to its commit. */
    void run(int task, String... files) throws IOException {
      OutputCommitter c = committer();
      c.setupTask(task(task));
      for (String f : files) {
        write(new Path(work(task), f), f + " of " + task);
      }
      assertTrue(c.needsTaskCommit(task(task)));
      c.commitTask(task(task));
    }
  }

  /** Those of the older interface have constructors that are not public. */
  private static final class OldJob extends org.apache.hadoop.mapred.JobContextImpl {
    OldJob(JobConf conf, org.apache.hadoop.mapreduce.JobID id) {
      super(conf, id);
    }
  }

  private static final class OldTask extends org.apache.hadoop.mapred.TaskAttemptContextImpl {
    OldTask(JobConf conf, TaskAttemptID id) {
      super(conf, org.apache.hadoop.mapred.TaskAttemptID.downgrade(id));
    }
  }

  private static TaskAttemptID attempt(int task) {
    return new TaskAttemptID(new TaskID("200707121733", 1, TaskType.MAP, task), 0);
  }

  private void write(Path p, String text) throws IOException {
    try (FSDataOutputStream out = fs.create(p, false)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }

  /** Returns all files below the destination, by path, with their content. */
  private TreeMap<String, String> output() throws IOException {
    TreeMap<String, String> all = new TreeMap<>();
    RemoteIterator<LocatedFileStatus> i = fs.listFiles(destination, true);
    while (i.hasNext()) {
      Path p = i.next().getPath();
      try (FSDataInputStream in = fs.open(p)) {
        String name = destination.toUri().relativize(p.toUri()).getPath();
        all.put(name, new String(in.readAllBytes(), StandardCharsets.UTF_8));
      }
    }
    return all;
  }

  private static TreeMap<String, String> expected(int tasks, String file) {
    TreeMap<String, String> all = new TreeMap<>();
    all.put(FileOutputCommitter.SUCCEEDED_FILE_NAME, "");
    for (int t = 0; t < tasks; t++) {
      all.put(file + t, file + t + " of " + t);
    }
    return all;
  }

  @ParameterizedTest
  @MethodSource("all")
  void commit(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    assertTrue(fs.exists(job.pending()));
    job.run(0, "part-0");
    assertEquals(version == 1, fs.exists(new Path(job.committed(0), "part-0")));
    assertEquals(version == 2, fs.exists(new Path(destination, "part-0")));
    assertFalse(version == 1 && fs.exists(job.work(0)), "it was renamed");
    c.commitJob(job.context());
    assertFalse(fs.exists(job.pending()));
    assertEquals(expected(1, "part-"), output());
  }

  /** Output formats write directories as well, such as MapFile's. */
  @ParameterizedTest
  @MethodSource("all")
  void directoriesInTheOutput(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    write(new Path(destination, "part-0/stale"), "what was there stays");
    job.run(0, "part-0/data", "part-0/index", "part-0/deep/deeper/x");
    c.commitJob(job.context());
    assertArrayEquals(
        new String[] {
          "_SUCCESS", "part-0/data", "part-0/deep/deeper/x", "part-0/index", "part-0/stale"
        },
        output().keySet().toArray());
  }

  /** A file in the destination that has the name of a task's is replaced. */
  @ParameterizedTest
  @MethodSource("all")
  void filesAreReplaced(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    write(new Path(destination, "part-0"), "old");
    job.run(0, "part-0");
    c.commitJob(job.context());
    assertEquals(expected(1, "part-"), output());
  }

  @ParameterizedTest
  @MethodSource("all")
  void commitTwice(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    job.run(0, "part-0");
    c.commitJob(job.context());
    if (version == 1) {
      assertThrows(IOException.class, () -> c.commitJob(job.context()));
    } else {
      c.commitJob(job.context());
    }
    assertEquals(expected(1, "part-"), output());
  }

  /** A task whose attempt was committed, and not reported, is run again. */
  @ParameterizedTest
  @MethodSource("all")
  void laterAttemptReplaces(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    job.run(0, "part-0");
    job.run(0, "part-0");
    c.commitJob(job.context());
    assertEquals(expected(1, "part-"), output());
  }

  /** The second attempt of an application continues with the tasks committed in the first. */
  @ParameterizedTest
  @MethodSource("all")
  void recovery(Api api, int version) throws Exception {
    recover(new Job(api, version, 1), new Job(api, version, 2));
  }

  @ParameterizedTest
  @MethodSource("all")
  void recoveryByTheOtherAlgorithm(Api api, int version) throws Exception {
    if (version == 1) {
      recover(new Job(api, 1, 1), new Job(api, 2, 2)); // after an upgrade; there is no way back
    }
  }

  private void recover(Job first, Job second) throws IOException {
    first.committer().setupJob(first.context());
    first.run(0, "part-0");
    OutputCommitter c = second.committer();
    assertTrue(c.isRecoverySupported(second.context()));
    c.setupJob(second.context());
    c.recoverTask(second.task(0));
    assertEquals(second.version == 1, fs.exists(new Path(second.committed(0), "part-0")));
    assertEquals(second.version == 2, fs.exists(new Path(destination, "part-0")));
    c.commitJob(second.context());
    assertEquals(expected(1, "part-"), output());
  }

  @ParameterizedTest
  @MethodSource("all")
  void abort(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    c.setupTask(job.task(0));
    write(new Path(job.work(0), "part-0"), "nothing");
    c.abortTask(job.task(0));
    assertFalse(fs.exists(job.work(0)));
    c.abortJob(job.context(), JobStatus.State.FAILED);
    assertFalse(fs.exists(job.pending()));
    assertEquals(0, fs.listStatus(destination).length);
  }

  @ParameterizedTest
  @MethodSource("all")
  void taskWithoutOutput(Api api, int version) throws Exception {
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    c.setupTask(job.task(0));
    assertFalse(c.needsTaskCommit(job.task(0)));
    c.commitJob(job.context());
    assertEquals(expected(0, ""), output());
  }

  /** Many tasks commit at once, into one directory that none of them finds there. */
  @ParameterizedTest
  @MethodSource("all")
  void tasksAtOnce(Api api, int version) throws Exception {
    int tasks = 16;
    Job job = new Job(api, version, 0);
    OutputCommitter c = job.committer();
    c.setupJob(job.context());
    ExecutorService pool = Executors.newFixedThreadPool(8);
    try {
      List<Future<?>> running = new ArrayList<>();
      for (int t = 0; t < tasks; t++) {
        int task = t;
        running.add(
            pool.submit(
                () -> {
                  job.run(task, "sub/part-" + task);
                  return null;
                }));
      }
      for (Future<?> f : running) {
        f.get(100, TimeUnit.SECONDS);
      }
    } finally {
      pool.shutdownNow();
    }
    c.commitJob(job.context());
    assertEquals(expected(tasks, "sub/part-"), output());
  }
}
