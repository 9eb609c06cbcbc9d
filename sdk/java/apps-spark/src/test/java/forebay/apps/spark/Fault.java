package forebay.apps.spark;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.TaskContext;

/** A fault of a task when half of its rows are written. */
interface Fault extends Serializable {
  Fault NONE = task -> {};

  void strike(TaskContext task);

  /**
   * The first attempt of a partition's task ends its executor with SIGKILL, and notes it in a file.
   */
  static Fault killed(int partition, Path folder) {
    String file = folder.resolve("killed").toString();
    return task -> {
      if (task.partitionId() == partition && task.attemptNumber() == 0) {
        String self = Long.toString(ProcessHandle.current().pid());
        try {
          Files.createFile(Path.of(file));
          new ProcessBuilder("kill", "-KILL", self).start();
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
        waitFor(Path.of(file + "-never"));
      }
    };
  }

  /**
   * The first attempt of a partition's task waits, through any interrupt, until there is a file
   * {@code go}. Then it goes on as if nothing had been. When it has ended, there is a file {@code
   * ended}.
   */
  static Fault slow(int partition, Path folder) {
    String go = folder.resolve("go").toString();
    String ended = folder.resolve("ended").toString();
    return task -> {
      if (task.partitionId() == partition && task.attemptNumber() == 0) {
        task.addTaskCompletionListener(
            context -> {
              try {
                Files.createFile(Path.of(ended));
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            });
        waitFor(Path.of(go));
      }
    };
  }

  /** Waits for a file, and does not let itself be interrupted. */
  static void waitFor(Path file) {
    while (!Files.exists(file)) {
      try {
        Thread.sleep(20);
      } catch (InterruptedException e) {
        // So it is slow, and does not react to the request to end.
      }
    }
  }
}
