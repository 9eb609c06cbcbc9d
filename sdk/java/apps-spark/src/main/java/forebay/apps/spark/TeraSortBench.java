package forebay.apps.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Times TeraSort on a store: {@code TeraSortBench URL [ROWS [FILES]]}, for {@code spark-submit}.
 * URL is a folder for its files ({@code bb://scratch/tera}, {@code file:///tmp/tera}), which is
 * removed before and after. Prints a line {@code terasort URL ROWS}, seconds, processor seconds.
 * Making the rows and validating them are not in it.
 */
public final class TeraSortBench {
  private TeraSortBench() {}

  public static void main(String[] args) throws Exception {
    String base = args[0];
    long rows = args.length > 1 ? Long.parseLong(args[1]) : 5_000_000;
    int files = args.length > 2 ? Integer.parseInt(args[2]) : 4;
    SparkConf conf =
        new SparkConf()
            .setAppName("TeraSort")
            .setIfMissing("spark.serializer", "org.apache.spark.serializer.KryoSerializer");
    try (JavaSparkContext spark = new JavaSparkContext(conf)) {
      Configuration hadoop = spark.hadoopConfiguration();
      Path folder = new Path(base);
      folder.getFileSystem(hadoop).delete(folder, true);
      TeraSort.generate(hadoop, rows, base + "/in");
      Measured.print(
          "terasort " + base + " " + rows,
          () -> {
            TeraSort.sort(spark, base + "/in", base + "/out", files);
            return null;
          });
      TeraSort.validate(hadoop, base + "/in", base + "/out", base + "/reports");
      folder.getFileSystem(hadoop).delete(folder, true);
    }
  }
}
