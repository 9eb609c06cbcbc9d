package forebay.hadoop;

import com.sun.management.OperatingSystemMXBean;
import forebay.client.testing.Daemon;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory;

/**
 * Commits the same job with every committer, on one daemon, and prints as Markdown tables how long the
 * tasks' commits took together and the job's, and the processor time of both, this process's and the
 * daemon's: once each task has files of all partitions, once each partition is one task's, which
 * committers that rename directories are good at. FOREBAY_COMMIT_FILES and
 * FOREBAY_COMMIT_PARTITIONS make it smaller. `make bench-commit` runs it.
 */
public final class JobCommitBench {
  private static final int FILES = number("FOREBAY_COMMIT_FILES", 10_000);
  private static final int PARTITIONS = number("FOREBAY_COMMIT_PARTITIONS", 100);
  private static final int TASKS = 20;
  private static final int WRITERS = 4;
  private static final String BUFFER = "bench";

  private JobCommitBench() {}

  private static int number(String variable, int otherwise) {
    String value = System.getenv(variable);
    return value == null ? otherwise : Integer.parseInt(value);
  }

  /** The name of a committer, and its settings. */
  private record Kind(String name, PathOutputCommitterFactory factory, String key, String value) {}

  private static List<Kind> kinds() {
    String algorithm = FileOutputCommitter.FILEOUTPUTCOMMITTER_ALGORITHM_VERSION;
    String durability = ForebayCommitter.DURABILITY;
    return List.of(
        new Kind("Forebay, resident", new ForebayCommitterFactory(), durability, "resident"),
        new Kind("Forebay, flushed", new ForebayCommitterFactory(), durability, "flushed"),
        new Kind("FileOutputCommitter v1", new FileOutputCommitterFactory(), algorithm, "1"),
        new Kind("FileOutputCommitter v2", new FileOutputCommitterFactory(), algorithm, "2"),
        new Kind("manifest committer", new ManifestCommitterFactory(), algorithm, "1"));
  }

  /** Seconds on the clock, and of processors. */
  private record Spent(double wall, double processor) {
    static Spent until() throws IOException {
      OperatingSystemMXBean os =
          (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
      return new Spent(System.nanoTime() / 1e9, os.getProcessCpuTime() / 1e9 + daemon());
    }

    private static double daemon() {
      return ProcessHandle.of(Daemon.get().pid())
          .flatMap(p -> p.info().totalCpuDuration())
          .map(d -> d.toNanos() / 1e9)
          .orElseThrow();
    }

    Spent since(Spent began) {
      return new Spent(wall - began.wall, processor - began.processor);
    }
  }

  private static void write(FileSystem fs, Path work, int task, int files, boolean all)
      throws IOException {
    byte[] content = new byte[1024];
    for (int f = task; f < files; f += TASKS) {
      int partition = (all ? f / TASKS : f) % PARTITIONS;
      try (OutputStream out = fs.create(new Path(work, "p=" + partition + "/part-" + f))) {
        out.write(content);
      }
    }
  }

  /** Runs a job of so many files, each task with all partitions or not, and returns its line. */
  private static String run(Kind kind, int files, boolean all) throws Exception {
    Configuration conf = TestBuffer.conf(BUFFER);
    conf.set(kind.key(), kind.value());
    Path output = new Path(TestBuffer.uri(BUFFER) + "/" + kind.name().replaceAll("\\W+", "-"));
    CommitterJob job = new CommitterJob(conf, output);
    FileSystem fs = output.getFileSystem(conf);
    PathOutputCommitter driver = kind.factory().createOutputCommitter(output, job.attempt(0, 0));
    driver.setupJob(job.context());
    ExecutorService pool = Executors.newFixedThreadPool(WRITERS);
    List<Future<PathOutputCommitter>> written = new ArrayList<>();
    for (int t = 0; t < TASKS; t++) {
      int task = t;
      written.add(
          pool.submit(
              () -> {
                TaskAttemptContext c = job.attempt(task, 0);
                PathOutputCommitter committer = kind.factory().createOutputCommitter(output, c);
                committer.setupTask(c);
                write(fs, committer.getWorkPath(), task, files, all);
                return committer;
              }));
    }
    List<PathOutputCommitter> committers = new ArrayList<>();
    for (Future<PathOutputCommitter> f : written) {
      committers.add(f.get());
    }
    pool.shutdown();
    Spent began = Spent.until();
    for (int t = 0; t < TASKS; t++) {
      committers.get(t).commitTask(job.attempt(t, 0));
    }
    Spent tasks = Spent.until();
    driver.commitJob(job.context());
    Spent end = Spent.until();
    int there = job.files().size();
    if (there != files) {
      throw new IllegalStateException(kind.name() + " has committed " + there + " files");
    }
    fs.delete(output, true);
    Spent ofTasks = tasks.since(began);
    Spent ofJob = end.since(tasks);
    return String.format(
        Locale.ROOT,
        "| %s | %.2f | %.2f | %.2f | %.2f |",
        kind.name(), ofTasks.wall(), ofTasks.processor(), ofJob.wall(), ofJob.processor());
  }

  /** Measures all committers, one after the other. */
  public static void main(String[] args) throws Exception {
    for (Kind kind : kinds()) {
      run(kind, FILES / 10, true); // so that all find classes loaded and compiled
    }
    for (boolean all : new boolean[] {true, false}) {
      System.out.printf(
          "%n%d files of 1 KiB by %d tasks, %s; seconds, and seconds of processors%n%n",
          FILES, TASKS,
          all
              ? "each in all of " + PARTITIONS + " partitions"
              : "each in " + PARTITIONS / TASKS + " partitions of its own");
      System.out.println("| committer | all task commits | processors | job commit | processors |");
      System.out.println("|---|---|---|---|---|");
      for (Kind kind : kinds()) {
        System.out.println(run(kind, FILES, all));
      }
    }
    FileSystem.closeAll();
  }
}
