package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.Entry;
import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A job whose process dies at its first message, at its second, and so on until it comes to its
 * end. After any last step, readers get all of the job or nothing, and its successor finishes it.
 */
@Timeout(600)
class DriverDeathTest {
  private static final int TASKS = 2;

  @BeforeEach
  void start() throws Exception {
    Daemon.get().start();
  }

  private static String[] output(int task) {
    return new String[] {"p=" + task + "/f", "p=both/f" + task};
  }

  private static List<String> everything() {
    Set<String> all = new TreeSet<>();
    for (int task = 0; task < TASKS; task++) {
      all.addAll(List.of(output(task)));
    }
    return List.copyOf(all);
  }

  /** Runs a job, whose tasks in done have been committed, and adds those that it commits. */
  private static void run(CommitterJob job, int attempt, Set<Integer> done) throws IOException {
    ForebayCommitter driver = job.setup();
    for (int task = 0; task < TASKS; task++) {
      if (done.contains(task)) {
        driver.recoverTask(job.attempt(task, 0));
        continue;
      }
      TaskAttemptContext c = job.attempt(task, attempt);
      ForebayCommitter committer = job.write(c, output(task));
      if (committer.needsTaskCommit(c)) {
        committer.commitTask(c);
      }
      done.add(task);
    }
    driver.commitJob(job.context());
  }

  /**
   * One process. Its connection goes through a proxy, and with the process goes all it had open.
   */
  private static boolean dies(CommitterJob job, int nth, boolean after, Set<Integer> done)
      throws Exception {
    Path socket = Files.createTempDirectory(Path.of("/tmp"), "bbdproxy").resolve("s");
    UserGroupInformation process = UserGroupInformation.createRemoteUser("process");
    List<Throwable> failures = new ArrayList<>();
    try (DyingProxy proxy = new DyingProxy(socket, Daemon.get().socket())) {
      job.conf.set(ForebayFileSystem.ADDRESS, proxy.address());
      PrivilegedExceptionAction<Void> work =
          () -> {
            run(job, 0, done);
            return null;
          };
      Thread t =
          new Thread(
              () -> {
                try {
                  process.doAs(work);
                } catch (Exception | Error e) {
                  failures.add(e);
                }
              });
      proxy.end(t, nth, after);
      t.start();
      t.join();
      FileSystem.closeAllForUGI(process);
      assertEquals(proxy.isOver(), !failures.isEmpty(), () -> "message " + nth + ": " + failures);
      return proxy.isOver();
    } finally {
      Files.deleteIfExists(socket.getParent());
      job.conf.set(ForebayFileSystem.ADDRESS, Daemon.get().socket());
    }
  }

  @ParameterizedTest(name = "the last message arrives: {0}")
  @ValueSource(booleans = {false, true})
  void atEveryMessage(boolean after) throws Exception {
    Configuration conf = TestBuffer.conf(CommitterJob.BUFFER);
    int deaths = 0;
    int committed = 0;
    while (true) {
      CommitterJob job = new CommitterJob(conf, CommitterJob.directory("dying"));
      Set<Integer> done = new TreeSet<>();
      boolean died = dies(job, deaths + 1, after, done);
      List<String> seen = job.files();
      assertTrue(
          seen.isEmpty() || seen.equals(everything()), "after message " + deaths + ": " + seen);
      if (job.succeeded()) {
        assertEquals(everything(), seen);
        assertFlushed(job);
      }
      if (!died) {
        assertTrue(job.succeeded());
        break;
      }
      deaths++;
      committed += seen.isEmpty() ? 0 : 1;
      if (deaths % 4 == 0 && seen.isEmpty() && done.size() < TASKS) {
        // Its successor may give it up as well.
        job.driver().abortJob(job.context(), JobStatus.State.FAILED);
        assertEquals(List.of(), job.files());
        continue;
      }
      run(job, 1, done);
      assertEquals(everything(), job.files());
      assertTrue(job.succeeded());
      assertFlushed(job);
    }
    assertNotEquals(0, committed, "it never died after the decision");
    assertFalse(committed == deaths, "it never died before the decision");
  }

  private static void assertFlushed(CommitterJob job) throws IOException {
    ForebayFileSystem fs = (ForebayFileSystem) job.output.getFileSystem(job.conf);
    for (String f : everything()) {
      Entry e = fs.buffer().stat(job.output.toUri().getPath() + "/" + f);
      assertTrue(e.state() == Entry.State.CLEAN || e.state() == Entry.State.EVICTED, e::toString);
    }
  }
}
