package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.BufferSpec;
import forebay.client.Client;
import forebay.client.ClientOptions;
import forebay.client.Entry;
import forebay.client.ForebayException;
import forebay.client.Kind;
import forebay.client.Txn;
import forebay.client.testing.Daemon;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.MapFile;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.MapFileOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.TextOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.ManifestSuccessData;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.Timeout;

/**
 * The committer, against a real daemon: the scenarios of Hadoop's own tests of FileOutputCommitter
 * and of S3A's committers, and their common gaps.
 */
@Timeout(180)
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class ForebayCommitterTest {
  private static CommitterJob abandoned;
  private static CommitterJob renewed;
  private static ForebayCommitter renewing;

  private Configuration conf;
  private FileSystem fs;

  @BeforeAll
  static void beginWhatLives() throws Exception {
    Daemon.get().start();
    Configuration brief = CommitterJob.resident();
    brief.set(ForebayCommitter.LEASE, "1s");
    abandoned = new CommitterJob(brief, CommitterJob.directory("abandoned"));
    abandoned.driver().adoptedDirectories(); // begins it, without renewals
    renewed = new CommitterJob(brief, CommitterJob.directory("renewed"));
    renewing = renewed.setup();
  }

  @BeforeEach
  void open() throws Exception {
    Daemon.get().start();
    conf = CommitterJob.resident();
    fs = TestBuffer.fileSystem(CommitterJob.BUFFER);
  }

  private CommitterJob job(String name) throws IOException {
    return new CommitterJob(conf, CommitterJob.directory(name));
  }

  private Txn.State state(CommitterJob job) throws IOException {
    String destination = job.output.toUri().getPath().substring(1);
    List<Txn.State> found =
        ((ForebayFileSystem) fs)
            .buffer().txns().stream()
                .filter(t -> t.destination().equals(destination))
                .map(Txn.Info::state)
                .toList();
    assertEquals(1, found.size(), "transactions into " + destination);
    return found.get(0);
  }

  /** A job through output formats, which find the committer by the scheme. */
  @Test
  void lifecycle() throws Exception {
    CommitterJob job = job("lifecycle");
    TextOutputFormat<Text, IntWritable> format = new TextOutputFormat<>();
    format.checkOutputSpecs(job.context());
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayCommitter committer =
        assertInstanceOf(ForebayCommitter.class, format.getOutputCommitter(c));
    committer.setupJob(job.context());
    committer.setupTask(c);
    assertFalse(committer.needsTaskCommit(c));
    assertTrue(committer.getWorkPath().toString().contains("/.txn/"), committer.toString());
    assertEquals(committer.getTaskAttemptPath(c), committer.getWorkPath());
    RecordWriter<Text, IntWritable> writer = format.getRecordWriter(c);
    writer.write(new Text("key"), new IntWritable(1));
    writer.close(c);
    assertTrue(committer.needsTaskCommit(c));
    assertEquals(List.of(), job.files());
    committer.commitTask(c);
    assertEquals(List.of(), job.files());
    assertFalse(job.succeeded());
    committer.commitJob(job.context());
    assertEquals(List.of("part-m-00000"), job.files());
    assertEquals("key\t1\n", job.text("part-m-00000"));

    ManifestSuccessData success =
        ManifestSuccessData.load(fs, new Path(job.output, FileOutputCommitter.SUCCEEDED_FILE_NAME));
    assertEquals(ForebayCommitter.class.getName(), success.getCommitter());
    assertEquals(job.id.toString(), success.getJobId());
    assertEquals("JobID", success.getJobIdSource());
    assertTrue(success.getSuccess());
    assertEquals("resident", success.getDiagnostics().get(ForebayCommitter.DURABILITY));
    assertEquals(
        List.of(new Path(job.output, "part-m-00000").toUri().getPath()), success.getFilenames());
    assertFalse(
        List.of(fs.listStatus(new Path("/"))).stream()
            .anyMatch(s -> s.getPath().getName().startsWith(".")));
  }

  /** MapFiles are directories of two files, which the job's readers find by name. */
  @Test
  void mapFiles() throws Exception {
    CommitterJob job = job("mapfile");
    MapFileOutputFormat format = new MapFileOutputFormat();
    job.conf.set("mapreduce.job.output.key.class", Text.class.getName());
    job.conf.set("mapreduce.job.output.value.class", Text.class.getName());
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayCommitter committer = job.setup();
    @SuppressWarnings({"unchecked", "rawtypes"})
    RecordWriter<Text, Text> writer = (RecordWriter) format.getRecordWriter(c);
    writer.write(new Text("a"), new Text("1"));
    writer.close(c);
    committer.commitTask(c);
    committer.commitJob(job.context());
    MapFile.Reader[] readers = MapFileOutputFormat.getReaders(job.output, conf);
    assertEquals(1, readers.length);
    Text value = new Text();
    readers[0].get(new Text("a"), value);
    assertEquals("1", value.toString());
    readers[0].close();
  }

  @Test
  void tasksWithoutOutput() throws Exception {
    CommitterJob job = job("nothing");
    ForebayCommitter driver = job.setup();
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayCommitter committer = job.of(c);
    committer.setupTask(c);
    assertFalse(committer.needsTaskCommit(c));
    committer.abortTask(c);
    committer.commitTask(c);
    driver.commitJob(job.context());
    assertEquals(List.of(), job.files());
    assertTrue(job.succeeded());
  }

  @Test
  void noOutputPath() throws Exception {
    CommitterJob job = job("none");
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayCommitter committer = new ForebayCommitter(null, c);
    committer.setupJob(job.context());
    assertNull(committer.getWorkPath());
    assertFalse(committer.needsTaskCommit(c));
    committer.commitTask(c);
    committer.abortTask(c);
    committer.commitJob(job.context());
    committer.abortJob(job.context(), JobStatus.State.FAILED);
  }

  @Test
  void theRootIsNoDestination() throws Exception {
    CommitterJob job = new CommitterJob(conf, new Path(TestBuffer.uri(CommitterJob.BUFFER) + "/"));
    IOException e = assertThrows(IOException.class, job::driver);
    assertTrue(e.getMessage().contains("root of a buffer"), e.getMessage());
    IOException other =
        assertThrows(
            IOException.class, () -> new CommitterJob(conf, new Path("file:///tmp/x")).driver());
    assertTrue(other.getMessage().contains("no transactions"), other.getMessage());
  }

  @Test
  void commitsMayBeRepeated() throws Exception {
    CommitterJob job = job("repeated");
    ForebayCommitter driver = job.setup();
    assertTrue(driver.isCommitJobRepeatable(job.context()));
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayCommitter committer = job.write(c, "f", "dir/g");
    committer.commitTask(c);
    committer.commitTask(c);
    job.of(c).commitTask(c);
    driver.commitJob(job.context());
    driver.commitJob(job.context());
    job.driver().commitJob(job.context());
    assertEquals(List.of("dir/g", "f"), job.files());
    // An application that was started again sets the job up again, and recovers its tasks.
    ForebayCommitter again = job.setup();
    again.recoverTask(c);
    again.commitJob(job.context());
    assertEquals(List.of("dir/g", "f"), job.files());
  }

  /** The second attempt that is authorised, because the first could not report, does no harm. */
  @Test
  void twoAttemptsOfATask() throws Exception {
    CommitterJob job = job("attempts");
    ForebayCommitter driver = job.setup();
    TaskAttemptContext first = job.attempt(0, 0);
    TaskAttemptContext second = job.attempt(0, 1);
    ForebayCommitter a = job.write(first, "f", "only-0");
    ForebayCommitter b = job.write(second, "f", "only-1");
    assertFalse(a.getWorkPath().equals(b.getWorkPath()));
    assertTrue(b.adopt(second));
    assertFalse(a.adopt(first));
    a.commitTask(first);
    assertFalse(fs.exists(a.getWorkPath()));
    // An abort of the winner, whose commit was not reported, has no effect.
    driver.abortTask(second);
    // One that begins only now may come to its end, for nothing.
    TaskAttemptContext third = job.attempt(0, 2);
    ForebayCommitter late = job.write(third, "f", "only-2");
    assertFalse(late.needsTaskCommit(third));
    late.commitTask(third);
    assertFalse(late.hasAdopted());
    // One that had begun before is fenced.
    assertThrows(IOException.class, () -> fs.create(new Path(a.getWorkPath(), "again")).close());
    driver.commitJob(job.context());
    assertEquals(List.of("f", "only-1"), job.files());
    assertEquals(second.getTaskAttemptID().toString(), job.text("f"));
  }

  @Test
  void abortedTasksLeaveNothing() throws Exception {
    CommitterJob job = job("abort");
    ForebayCommitter driver = job.setup();
    TaskAttemptContext failed = job.attempt(0, 0);
    ForebayCommitter committer = job.write(failed, "f", "dir/g");
    // Another process aborts it, as MapReduce's master does.
    job.driver().abortTask(failed);
    assertFalse(fs.exists(committer.getWorkPath()));
    assertFalse(committer.needsTaskCommit(failed));
    committer.abortTask(failed);
    job.task(0, 1, "h");
    driver.commitJob(job.context());
    assertEquals(List.of("h"), job.files());
  }

  @Test
  void abortedJobsLeaveNothing() throws Exception {
    CommitterJob job = job("abortjob");
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "f");
    TaskAttemptContext late = job.attempt(1, 0);
    ForebayCommitter committer = job.write(late, "g");
    driver.abortJob(job.context(), JobStatus.State.FAILED);
    job.driver().abortJob(job.context(), JobStatus.State.KILLED);
    assertEquals(Txn.State.ABORTED, state(job));
    assertFalse(committer.needsTaskCommit(late));
    committer.abortTask(late);
    for (IOException e :
        List.of(
            assertThrows(IOException.class, () -> committer.commitTask(late)),
            assertThrows(IOException.class, () -> job.write(job.attempt(2, 0), "h")),
            assertThrows(IOException.class, () -> driver.commitJob(job.context())),
            assertThrows(IOException.class, () -> job.setup()))) {
      assertTrue(
          List.of(Kind.CANCELLED, Kind.NOT_FOUND).contains(kindOf(e)), "unexpected: " + e);
    }
    assertEquals(List.of(), job.files());
    assertFalse(job.succeeded());
  }

  private static Kind kindOf(IOException e) {
    return ForebayException.kindOf(e instanceof ForebayException ? e : e.getCause());
  }

  /** No action of an attempt after its job was committed is ever visible. */
  @Test
  void zombiesAfterTheJob() throws Exception {
    CommitterJob job = job("zombie");
    ForebayCommitter driver = job.setup();
    TaskAttemptContext zombie = job.attempt(0, 0);
    ForebayCommitter committer = job.of(zombie);
    FSDataOutputStream open = fs.create(new Path(committer.getWorkPath(), "zombie"));
    open.write(1);
    open.hflush();
    job.task(0, 1, "f");
    TaskAttemptContext never = job.attempt(1, 0);
    ForebayCommitter unheard = job.write(never, "never");
    driver.commitJob(job.context());

    open.write(2);
    assertThrows(IOException.class, open::close);
    assertThrows(IOException.class, () -> job.write(zombie, "again"));
    assertThrows(IOException.class, () -> unheard.commitTask(never));
    assertFalse(unheard.needsTaskCommit(never));
    committer.abortTask(zombie);
    driver.abortJob(job.context(), JobStatus.State.FAILED);
    assertEquals(List.of("f"), job.files());
    assertEquals(Txn.State.FOLDED, state(job));
  }

  /** S3A's parallel jobs to the same destination. One is aborted besides. */
  @Test
  void jobsIntoOneDirectory() throws Exception {
    Path output = CommitterJob.directory("shared");
    CommitterJob x = new CommitterJob(conf, output);
    CommitterJob y = new CommitterJob(conf, output);
    CommitterJob z = new CommitterJob(conf, output);
    ForebayCommitter xd = x.setup();
    ForebayCommitter yd = y.setup();
    ForebayCommitter zd = z.setup();
    x.task(0, 0, "x", "both", "dir/x");
    y.task(0, 0, "y", "both", "dir/y");
    z.task(0, 0, "z", "both");
    zd.abortJob(z.context(), JobStatus.State.FAILED);
    xd.commitJob(x.context());
    assertEquals(List.of("both", "dir/x", "x"), x.files());
    yd.commitJob(y.context());
    assertEquals(List.of("both", "dir/x", "dir/y", "x", "y"), x.files());
    assertEquals(y.attempt(0, 0).getTaskAttemptID().toString(), x.text("both"));
  }

  /** One job may write into several directories, and two may do so next to each other. */
  @Test
  void oneJobIntoTwoDirectories() throws Exception {
    CommitterJob a = job("adjacent");
    CommitterJob b = job("adjacent");
    a.conf.set(ForebayCommitter.KEY, "adjacent" + a.id);
    b.conf.set(ForebayCommitter.KEY, "adjacent" + a.id);
    ForebayCommitter ad = a.setup();
    ForebayCommitter bd = b.setup();
    a.task(0, 0, "a");
    b.task(0, 0, "b");
    bd.abortJob(b.context(), JobStatus.State.FAILED);
    ad.commitJob(a.context());
    assertEquals(List.of("a"), a.files());
    assertEquals(List.of(), b.files());
  }

  @Test
  void manyTasksAtOnce() throws Exception {
    CommitterJob job = job("concurrent");
    ForebayCommitter driver = job.setup();
    ExecutorService pool = Executors.newFixedThreadPool(8);
    List<Future<?>> all = new ArrayList<>();
    for (int task = 0; task < 16; task++) {
      for (int attempt = 0; attempt < 2; attempt++) {
        TaskAttemptContext c = job.attempt(task, attempt);
        String name = "p=" + task % 3 + "/f" + task;
        Callable<Boolean> work =
            () -> {
              ForebayCommitter committer;
              try {
                committer = job.write(c, name);
              } catch (IOException e) {
                assertTrue(List.of(Kind.CANCELLED, Kind.NOT_FOUND).contains(kindOf(e)), e::toString);
                return false; // the other attempt has won, and this one is fenced
              }
              return committer.adopt(c);
            };
        all.add(pool.submit(work));
      }
    }
    int winners = 0;
    for (Future<?> f : all) {
      winners += Boolean.TRUE.equals(f.get()) ? 1 : 0;
    }
    pool.shutdown();
    assertEquals(16, winners);
    driver.commitJob(job.context());
    List<String> want = IntStream.range(0, 16).mapToObj(t -> "p=" + t % 3 + "/f" + t).sorted().toList();
    assertEquals(want, job.files());
  }

  @Test
  void replacesDirectoriesInTheSameStep() throws Exception {
    CommitterJob first = job("replace");
    ForebayCommitter driver = first.setup();
    first.task(0, 0, "p=1/old", "p=2/old", "p=3/old");
    driver.commitJob(first.context());
    CommitterJob second = new CommitterJob(conf, first.output);
    driver = second.setup();
    second.task(0, 0, "p=1/new", "p=1/newer", "p=4/new");
    assertEquals(List.of("p=1", "p=4"), List.copyOf(driver.adoptedDirectories()));
    driver.replace(driver.adoptedDirectories());
    driver.replace(List.of("p=3"));
    assertEquals(List.of("p=1/old", "p=2/old", "p=3/old"), first.files());
    driver.commitJob(second.context());
    assertEquals(List.of("p=1/new", "p=1/newer", "p=2/old", "p=4/new"), second.files());

    CommitterJob third = new CommitterJob(conf, first.output);
    driver = third.setup();
    third.task(0, 0, "all");
    driver.replace(List.of("."));
    driver.commitJob(third.context());
    assertEquals(List.of("all"), third.files());
    assertTrue(third.succeeded());
  }

  @Test
  void noMarkIsWrittenIfNoneIsWanted() throws Exception {
    CommitterJob job = job("unmarked");
    job.conf.setBoolean(FileOutputCommitter.SUCCESSFUL_JOB_OUTPUT_DIR_MARKER, false);
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "f");
    driver.commitJob(job.context());
    assertEquals(List.of("f"), job.files());
    assertFalse(job.succeeded());
  }

  @Test
  void cleanupMayBeSkipped() throws Exception {
    CommitterJob job = job("skipped");
    job.conf.setBoolean(FileOutputCommitter.FILEOUTPUTCOMMITTER_CLEANUP_SKIPPED, true);
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "f");
    driver.abortJob(job.context(), JobStatus.State.FAILED);
    assertEquals(Txn.State.OPEN, state(job));
    job.conf.setBoolean(FileOutputCommitter.FILEOUTPUTCOMMITTER_CLEANUP_SKIPPED, false);
    driver.abortJob(job.context(), JobStatus.State.FAILED);
    assertEquals(Txn.State.ABORTED, state(job));
  }

  /** By default the store has everything when a job is committed. */
  @Test
  void flushedOutput() throws Exception {
    CommitterJob job = job("flushed");
    job.conf.unset(ForebayCommitter.DURABILITY);
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "p=1/f", "p=2/f");
    driver.commitJob(job.context());
    String dir = job.output.toUri().getPath();
    for (String f : List.of("p=1/f", "p=2/f", "_SUCCESS")) {
      Entry e = ((ForebayFileSystem) fs).buffer().stat(dir + "/" + f);
      assertTrue(
          e.state() == Entry.State.CLEAN || e.state() == Entry.State.EVICTED, f + ": " + e);
      assertTrue(
          java.nio.file.Files.exists(
              Daemon.get().dir().resolve("store-" + CommitterJob.BUFFER + dir + "/" + f)),
          f);
    }
    ManifestSuccessData success = ManifestSuccessData.load(fs, new Path(job.output, "_SUCCESS"));
    assertEquals("flushed", success.getDiagnostics().get(ForebayCommitter.DURABILITY));
    assertTrue(success.getMetrics().containsKey("flush_ms"));

    job.conf.set(ForebayCommitter.DURABILITY, "sometimes");
    assertThrows(IOException.class, job::setup);
  }

  /** A job waits for its own output, and not for files that the store never takes from others. */
  @Test
  void flushedBesideWhatCannotBe() throws Exception {
    CommitterJob job = job("beside");
    job.conf.unset(ForebayCommitter.DURABILITY);
    Path stuck = CommitterJob.directory("stuck");
    String name = stuck.toUri().getPath();
    java.nio.file.Path there = Daemon.get().dir().resolve("store-" + CommitterJob.BUFFER + name);
    java.nio.file.Files.createDirectories(there.resolve("in-the-way"));
    fs.create(stuck).close();
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "f");
    driver.commitJob(job.context());
    assertEquals(Entry.State.DIRTY, ((ForebayFileSystem) fs).buffer().stat(name).state());

    // Output of its own that the store does not take fails it, with its name.
    CommitterJob other = job("blocked");
    other.conf.unset(ForebayCommitter.DURABILITY);
    String dir = other.output.toUri().getPath();
    java.nio.file.Files.createDirectories(
        Daemon.get().dir().resolve("store-" + CommitterJob.BUFFER + dir + "/f/in-the-way"));
    ForebayCommitter blocked = other.setup();
    other.task(0, 0, "f");
    IOException e = assertThrows(IOException.class, () -> blocked.commitJob(other.context()));
    assertTrue(e.getMessage().contains(dir.substring(1) + "/f"), e.getMessage());
    assertFalse(fs.exists(new Path(other.output, "_SUCCESS")));
  }

  /** A buffer without a store can hold its output in memory alone. */
  @Test
  void buffersWithoutAStore() throws Exception {
    String name = "storeless";
    try (Client c = Client.dial(ClientOptions.defaults().withAddress(Daemon.get().socket()))) {
      c.createBuffer(BufferSpec.named(name, ""));
    }
    Configuration plain = new Configuration();
    plain.set(ForebayFileSystem.ADDRESS, Daemon.get().socket());
    CommitterJob job = new CommitterJob(plain, new Path("bb://" + name + "/out"));
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "f");
    driver.commitJob(job.context());
    assertEquals(List.of("f"), job.files());
    job.conf.set(ForebayCommitter.DURABILITY, "flushed");
    IOException e = assertThrows(IOException.class, job::setup);
    assertTrue(e.getMessage().contains("no store"), e.getMessage());
  }

  /**
   * A driver renews the lease of its job, so that it lives as long as the driver. Daemons check
   * leases now and then, so this is the last test, for jobs that began before the first.
   */
  @Test
  @Order(Integer.MAX_VALUE)
  void theLeaseIsRenewed() throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
    while (state(abandoned) != Txn.State.ABORTED) {
      assertTrue(System.nanoTime() < deadline, "a transaction that nobody renews is not aborted");
      Thread.sleep(20);
    }
    assertEquals(Txn.State.OPEN, state(renewed));
    renewed.task(0, 0, "f");
    assertDoesNotThrow(() -> renewing.commitJob(renewed.context()));
    assertEquals(List.of("f"), renewed.files());
  }

  /** All processes of a job may lose their daemon between any two steps. */
  @Test
  void theDaemonIsKilledBetweenTheCommits() throws Exception {
    CommitterJob job = job("killed");
    ForebayCommitter driver = job.setup();
    job.task(0, 0, "p=1/f");
    TaskAttemptContext c = job.attempt(1, 0);
    ForebayCommitter committer = job.write(c, "p=2/g");
    Daemon.get().kill();
    Daemon.get().start();
    committer.commitTask(c);
    Daemon.get().kill();
    Daemon.get().start();
    assertEquals(List.of(), job.files());
    driver.commitJob(job.context());
    Daemon.get().kill();
    Daemon.get().start();
    assertEquals(List.of("p=1/f", "p=2/g"), job.files());
    assertTrue(job.succeeded());
  }

  @Test
  void longDestinationsAreJobsOfTheirOwn() throws Exception {
    JobContext c = job("x").context();
    JobKey key = JobKey.of(c);
    String name = "d".repeat(250) + "/";
    assertEquals(c.getJobID() + "@a/b", key.into("a/b"));
    assertTrue(key.into(name.repeat(5) + "a").length() < 200);
    assertFalse(key.into(name.repeat(5) + "a").equals(key.into(name.repeat(5) + "b")));
    c.getConfiguration().set("spark.sql.sources.writeJobUUID", "uuid");
    assertEquals("uuid@a", JobKey.of(c).into("a"));
  }
}
