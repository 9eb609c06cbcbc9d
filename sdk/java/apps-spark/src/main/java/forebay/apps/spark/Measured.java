package forebay.apps.spark;

import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.Callable;

/**
 * The time of something, and the processor time, user and system, of this JVM and those that it
 * started (with Spark's local and local-cluster masters, of the driver and all executors), and of
 * the processes whose numbers are in the environment's FOREBAY_BENCH_PIDS, with commas between (the
 * servers that work for it).
 */
final class Measured {
  private static final String SERVERS = System.getenv().getOrDefault("FOREBAY_BENCH_PIDS", "");

  private final long began = System.nanoTime();
  private final Duration before = processorTime();

  private Measured() {}

  /** Does something, and prints a line: its name, seconds, seconds of processor time, with tabs between. */
  static void print(String what, Callable<?> work) throws Exception {
    Measured m = new Measured();
    work.call();
    double seconds = (System.nanoTime() - m.began) / 1e9;
    double processor = processorTime().minus(m.before).toNanos() / 1e9;
    System.out.printf(Locale.ROOT, "%s\t%.2f s\t%.2f s of processor time%n", what, seconds, processor);
  }

  /** Of processes that live. None may end while something is measured. */
  private static Duration processorTime() {
    ProcessHandle self = ProcessHandle.current();
    Duration sum = of(self);
    for (ProcessHandle child : self.descendants().toList()) {
      sum = sum.plus(of(child));
    }
    for (String pid : SERVERS.split(",")) {
      if (!pid.isEmpty()) {
        sum = sum.plus(of(ProcessHandle.of(Long.parseLong(pid)).orElseThrow()));
      }
    }
    return sum;
  }

  private static Duration of(ProcessHandle process) {
    return process.info().totalCpuDuration().orElse(Duration.ZERO);
  }
}
