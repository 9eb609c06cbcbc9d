package forebay.apps.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraChecksum;
import org.apache.hadoop.examples.terasort.TeraGen;
import org.apache.hadoop.examples.terasort.TeraInputFormat;
import org.apache.hadoop.examples.terasort.TeraOutputFormat;
import org.apache.hadoop.examples.terasort.TeraValidate;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * TeraSort as a Spark job, on the output of Hadoop's TeraGen. Hadoop's TeraValidate checks the
 * output. A row has 100 bytes, the first 10 of them its key.
 */
public final class TeraSort {
  private TeraSort() {}

  /**
   * Makes rows with Hadoop's own job, in this process.
   *
   * @param rows how many, of 100 bytes
   * @param out the folder of its output, which must not be there
   */
  public static void generate(Configuration conf, long rows, String out) throws Exception {
    run(conf, new TeraGen(), Long.toString(rows), out);
  }

  /**
   * Sorts rows, with Spark, into as many files.
   *
   * @param in a folder that {@link #generate} made
   * @param out the folder of its output, which must not be there
   */
  public static void sort(JavaSparkContext spark, String in, String out, int files) {
    Configuration conf = spark.hadoopConfiguration();
    spark
        .newAPIHadoopFile(in, TeraInputFormat.class, Text.class, Text.class, conf)
        .mapToPair(row -> new Tuple2<>(bytes(row._1), bytes(row._2)))
        .repartitionAndSortWithinPartitions(
            new Ranges(files), (Comparator<byte[]> & Serializable) Arrays::compareUnsigned)
        .mapToPair(row -> new Tuple2<>(new Text(row._1), new Text(row._2)))
        .saveAsNewAPIHadoopFile(out, Text.class, Text.class, TeraOutputFormat.class, conf);
  }

  /**
   * Checks with Hadoop's own jobs, in this process, that rows are in order within and between files, and
   * are those that were to be sorted.
   *
   * @param reports a folder for their output
   * @throws IllegalStateException if they are not. It names the place
   */
  public static void validate(Configuration conf, String in, String sorted, String reports)
      throws Exception {
    run(conf, new TeraChecksum(), in, reports + "/in");
    run(conf, new TeraValidate(), sorted, reports + "/sorted");
    String sum = "checksum\t" + String.join("; ", lines(conf, reports + "/in"));
    String found = String.join("; ", lines(conf, reports + "/sorted"));
    if (!found.equals(sum)) {
      throw new IllegalStateException(sorted + " should have " + sum + " and no errors: " + found);
    }
  }

  private static List<String> lines(Configuration conf, String report) throws IOException {
    Path file = new Path(report, "part-r-00000");
    try (BufferedReader r =
        new BufferedReader(
            new InputStreamReader(file.getFileSystem(conf).open(file), StandardCharsets.UTF_8))) {
      return r.lines().toList();
    }
  }

  private static void run(Configuration conf, Tool tool, String... args) throws Exception {
    int code = ToolRunner.run(new Configuration(conf), tool, args);
    if (code != 0) {
      throw new IllegalStateException(tool + " " + String.join(" ", args) + ": exit code " + code);
    }
  }

  private static byte[] bytes(Text text) {
    return Arrays.copyOf(text.getBytes(), text.getLength());
  }

  /** Keys in ranges of the same width, since TeraGen's are spread evenly. */
  private static final class Ranges extends Partitioner {
    private final int ranges;

    Ranges(int ranges) {
      this.ranges = ranges;
    }

    @Override
    public int numPartitions() {
      return ranges;
    }

    @Override
    public int getPartition(Object key) {
      byte[] k = (byte[]) key;
      long first = (k[0] & 255L) << 24 | (k[1] & 255L) << 16 | (k[2] & 255L) << 8 | k[3] & 255L;
      return (int) (first * ranges >>> 32);
    }
  }
}
