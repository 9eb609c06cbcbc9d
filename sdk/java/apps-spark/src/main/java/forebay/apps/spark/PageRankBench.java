package forebay.apps.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Times PageRank on a store: {@code PageRankBench URL [PAGES [ITERATIONS]]}, for {@code
 * spark-submit}. URL is a folder for its files, which is removed before and after. Prints a line
 * {@code pagerank URL PAGES}, seconds, processor seconds. Making the graph is not in it.
 */
public final class PageRankBench {
  private static final int FILES = 8;

  private PageRankBench() {}

  public static void main(String[] args) throws Exception {
    String base = args[0];
    int pages = args.length > 1 ? Integer.parseInt(args[1]) : 500_000;
    int iterations = args.length > 2 ? Integer.parseInt(args[2]) : 6;
    SparkConf conf =
        new SparkConf()
            .setAppName("PageRank")
            .setIfMissing("spark.serializer", "org.apache.spark.serializer.KryoSerializer");
    try (JavaSparkContext spark = new JavaSparkContext(conf)) {
      Configuration hadoop = spark.hadoopConfiguration();
      Path folder = new Path(base);
      folder.getFileSystem(hadoop).delete(folder, true);
      PageRank.generate(spark, pages, FILES, base + "/links");
      Measured.print(
          "pagerank " + base + " " + pages,
          () -> {
            PageRank.rank(spark, base + "/links", base + "/checkpoints", base + "/ranks", iterations);
            return null;
          });
      folder.getFileSystem(hadoop).delete(folder, true);
    }
  }
}
