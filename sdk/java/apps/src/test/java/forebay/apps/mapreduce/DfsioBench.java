package forebay.apps.mapreduce;

import forebay.client.testing.ProcessorTime;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.ToolRunner;

/**
 * Times TestDFSIO on a store: {@code DfsioBench URL SCRATCH [FILES [MIB [ROUNDS]]]}. URL is a folder for
 * its files, SCRATCH a local one for those of the jobs. Two tasks work at a time, in this JVM. Prints
 * for writes and reads a line {@code row}, the measurement, the store, TestDFSIO's "throughput" (bytes
 * by the sum of all tasks' times) in GB/s, and the processor time of a round in seconds, with tabs
 * between: medians of all rounds after one that warms up.
 */
public final class DfsioBench {
  private static final Pattern THROUGHPUT = Pattern.compile("Throughput mb/sec: +([0-9.]+)");

  private DfsioBench() {}

  public static void main(String[] args) {
    try {
      measure(args);
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1);
    }
    System.exit(0); // the jobs leave threads
  }

  private static void measure(String[] args) throws Exception {
    URI url = URI.create(args[0]);
    Path scratch = Path.of(args[1]);
    String files = args.length > 2 ? args[2] : "8";
    String mib = args.length > 3 ? args[3] : "128";
    int rounds = args.length > 4 ? Integer.parseInt(args[4]) : 3;

    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", url.resolve("/").toString());
    conf.set("test.build.data", url.getPath());
    conf.set("hadoop.tmp.dir", scratch.toString());
    conf.setInt("dfs.replication", 1);
    conf.setInt("mapreduce.local.map.tasks.maximum", 2);
    conf.setInt("mapreduce.client.completion.pollinterval", 50);
    conf.setInt("mapreduce.client.progressmonitor.pollinterval", 50);

    List<double[]> writes = new ArrayList<>();
    List<double[]> reads = new ArrayList<>();
    for (int round = 0; round <= rounds; round++) {
      double[] write = run(conf, scratch, "-write", files, mib);
      double[] read = run(conf, scratch, "-read", files, mib);
      if (round > 0) {
        writes.add(write);
        reads.add(read);
      }
    }
    print("TestDFSIO write, GB/s for a task", url, writes);
    print("TestDFSIO read, GB/s for a task", url, reads);
    ToolRunner.run(conf, new TestDFSIO(), new String[] {"-clean"});
  }

  /** Returns throughput in GB/s and processor time in seconds. */
  private static double[] run(
      Configuration conf, Path scratch, String what, String files, String mib) throws Exception {
    Path report = scratch.resolve("dfsio.log");
    Files.deleteIfExists(report);
    String[] args = {
      what, "-nrFiles", files, "-size", mib + "MB", "-bufferSize", "1048576",
      "-resFile", report.toString(),
    };
    double before = ProcessorTime.seconds();
    if (ToolRunner.run(conf, new TestDFSIO(), args) != 0) {
      throw new IOException("TestDFSIO " + what + " failed");
    }
    double processor = ProcessorTime.seconds() - before;
    Matcher m = THROUGHPUT.matcher(Files.readString(report));
    if (!m.find()) {
      throw new IOException("TestDFSIO reports no throughput:\n" + Files.readString(report));
    }
    return new double[] {Double.parseDouble(m.group(1)) * (1 << 20) / 1e9, processor};
  }

  private static void print(String what, URI url, List<double[]> rounds) {
    System.out.printf(
        Locale.ROOT,
        "row\t%s\t%s\t%.2f\t%.1f%n",
        what,
        url.getScheme(),
        median(rounds, 0),
        median(rounds, 1));
  }

  private static double median(List<double[]> rounds, int figure) {
    double[] sorted = rounds.stream().mapToDouble(r -> r[figure]).sorted().toArray();
    return sorted[sorted.length / 2];
  }
}
