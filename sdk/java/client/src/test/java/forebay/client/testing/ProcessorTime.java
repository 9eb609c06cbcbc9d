package forebay.client.testing;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Processor time, user and system, of this JVM, the processes that it started, and those whose numbers
 * are in the environment's FOREBAY_BENCH_PIDS, with commas between (the servers that work for it).
 * It counts processes that live. None may end while something is measured.
 */
public final class ProcessorTime {
  private static final String FURTHER = System.getenv().getOrDefault("FOREBAY_BENCH_PIDS", "");

  private ProcessorTime() {}

  /** Returns their processor time so far, in seconds. */
  public static double seconds() {
    ProcessHandle self = ProcessHandle.current();
    List<ProcessHandle> all = new ArrayList<>(self.descendants().toList());
    all.add(self);
    for (String pid : FURTHER.split(",")) {
      if (!pid.isEmpty()) {
        all.add(ProcessHandle.of(Long.parseLong(pid)).orElseThrow());
      }
    }
    return all.stream().mapToDouble(ProcessorTime::of).sum();
  }

  private static double of(ProcessHandle p) {
    return p.info().totalCpuDuration().orElse(Duration.ZERO).toNanos() / 1e9;
  }
}
