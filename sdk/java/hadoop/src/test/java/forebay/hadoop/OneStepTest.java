package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.FileNotFoundException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Many files in many partitions, committed while they are listed over and over. A listing that has
 * one has all. FOREBAY_COMMIT_FILES and FOREBAY_COMMIT_PARTITIONS make it larger.
 */
@Timeout(3600)
class OneStepTest {
  private static final int FILES = number("FOREBAY_COMMIT_FILES", 300);
  private static final int PARTITIONS = number("FOREBAY_COMMIT_PARTITIONS", 30);
  private static final int TASKS = 8;

  private FileSystem fs;
  private Path output;
  private ForebayCommitter driver; // which keeps the job alive as long as it is referred to

  private static int number(String variable, int otherwise) {
    String value = System.getenv(variable);
    return value == null ? otherwise : Integer.parseInt(value);
  }

  @BeforeEach
  void open() throws Exception {
    Daemon.get().start();
    fs = TestBuffer.fileSystem(CommitterJob.BUFFER);
    output = CommitterJob.directory("onestep");
  }

  /** Writes the files of a job, by several tasks at once, each into every partition. */
  private CommitterJob written(String prefix) throws Exception {
    CommitterJob job = new CommitterJob(CommitterJob.resident(), output);
    driver = job.setup();
    ExecutorService pool = Executors.newFixedThreadPool(TASKS);
    List<Future<?>> all = new ArrayList<>();
    for (int t = 0; t < TASKS; t++) {
      int task = t;
      List<String> files = new ArrayList<>();
      for (int f = task; f < FILES; f += TASKS) {
        files.add("p=" + f % PARTITIONS + "/" + prefix + f);
      }
      all.add(
          pool.submit(
              () -> {
                job.task(task, 0, files.toArray(new String[0]));
                return null;
              }));
    }
    for (Future<?> f : all) {
      f.get();
    }
    pool.shutdown();
    return job;
  }

  /** Commits in a thread of its own, while look is called over and over. */
  private void commit(CommitterJob job, List<String> replaced, Look look) throws Exception {
    ExecutorService pool = Executors.newSingleThreadExecutor();
    look.run(); // before it
    Future<?> commit =
        pool.submit(
            () -> {
              driver.replace(replaced);
              driver.commitJob(job.context());
              return null;
            });
    while (!commit.isDone()) {
      look.run();
    }
    commit.get();
    pool.shutdown();
    look.run(); // after it
  }

  private interface Look {
    void run() throws Exception;
  }

  /** Returns the names of a partition's files. */
  private TreeSet<String> partition(int p) throws Exception {
    TreeSet<String> names = new TreeSet<>();
    for (FileStatus s : fs.listStatus(new Path(output, "p=" + p))) {
      names.add(s.getPath().getName());
    }
    return names;
  }

  private static TreeSet<String> want(String prefix, int p) {
    TreeSet<String> names = new TreeSet<>();
    for (int f = p; f < FILES; f += PARTITIONS) {
      names.add(prefix + f);
    }
    return names;
  }

  @Test
  void listersSeeNothingOrAll() throws Exception {
    int[] empty = new int[1];
    int[] full = new int[1];
    commit(
        written("a"),
        List.of(),
        () -> {
          long partitions =
              List.of(fs.listStatus(output)).stream().filter(FileStatus::isDirectory).count();
          if (partitions == 0) {
            empty[0]++;
            return;
          }
          assertEquals(PARTITIONS, partitions);
          full[0]++;
          for (int p = 0; p < PARTITIONS; p++) {
            assertEquals(want("a", p), partition(p));
          }
        });
    assertTrue(empty[0] > 0 && full[0] > 0, empty[0] + " times nothing, " + full[0] + " times all");

    // Every second partition is replaced. Each is whole, and once one is new, all others are.
    List<String> replaced = new ArrayList<>();
    for (int p = 0; p < PARTITIONS; p += 2) {
      replaced.add("p=" + p);
    }
    int[] old = new int[1];
    int[] changed = new int[1];
    commit(
        written("b"),
        replaced,
        () -> {
          boolean after = false;
          for (int p = 0; p < PARTITIONS; p++) {
            TreeSet<String> before = want("a", p);
            TreeSet<String> then = want("b", p);
            if (p % 2 == 1) {
              then.addAll(before);
            }
            TreeSet<String> got;
            try {
              got = partition(p);
            } catch (FileNotFoundException e) {
              throw new AssertionError("partition " + p + " is gone", e);
            }
            after |= got.equals(then);
            assertEquals(after ? then : before, got, "partition " + p);
          }
          (after ? changed : old)[0]++;
        });
    assertTrue(old[0] > 0 && changed[0] > 0, old[0] + " times before, " + changed[0] + " after");
  }
}
