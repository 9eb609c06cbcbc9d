package forebay.apps.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.SplittableRandom;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * PageRank as a Spark job, over a graph that is generated. The links lie in text files, a line with
 * two numbers each, the ranks too, a line with a number and its rank each. Between its iterations
 * the job keeps its state in checkpoints on the same store.
 */
public final class PageRank {
  private static final double DAMPING = 0.85;
  private static final int LINKS_OF_A_PAGE = 8;
  private static final int CHECKPOINT_EVERY = 3;

  private PageRank() {}

  /**
   * Makes a graph, the same for the same numbers. Each page has eight links, most of them to few
   * pages.
   *
   * @param out the folder of its output, which must not be there
   */
  public static void generate(JavaSparkContext spark, int pages, int files, String out) {
    List<Integer> parts = new ArrayList<>();
    for (int i = 0; i < files; i++) {
      parts.add(i);
    }
    spark
        .parallelize(parts, files)
        .flatMap(
            part -> {
              List<String> lines = new ArrayList<>();
              for (int page = part; page < pages; page += files) {
                SplittableRandom random = new SplittableRandom(page);
                for (int i = 0; i < LINKS_OF_A_PAGE; i++) {
                  lines.add(page + " " + (int) (pages * Math.pow(random.nextDouble(), 3)));
                }
              }
              return lines.iterator();
            })
        .saveAsTextFile(out);
  }

  /**
   * Computes the ranks, which sum up to about the number of pages.
   *
   * @param links a folder that {@link #generate} made
   * @param checkpoints a folder for checkpoints
   * @param out the folder of its output, which must not be there
   */
  public static void rank(
      JavaSparkContext spark, String links, String checkpoints, String out, int iterations) {
    spark.setCheckpointDir(checkpoints);
    JavaPairRDD<Integer, Iterable<Integer>> targets =
        spark.textFile(links).mapToPair(PageRank::link).distinct().groupByKey().cache();
    JavaPairRDD<Integer, Double> ranks = targets.mapValues(links0 -> 1.0);
    for (int i = 1; i <= iterations; i++) {
      ranks =
          targets
              .join(ranks)
              .values()
              .flatMapToPair(page -> shares(page._1, page._2))
              .reduceByKey(Double::sum)
              .mapValues(sum -> 1 - DAMPING + DAMPING * sum);
      if (i % CHECKPOINT_EVERY == 0) {
        ranks.checkpoint();
        ranks.count();
      }
    }
    ranks.map(page -> page._1 + " " + page._2).saveAsTextFile(out);
  }

  private static Tuple2<Integer, Integer> link(String line) {
    int space = line.indexOf(' ');
    return new Tuple2<>(
        Integer.parseInt(line.substring(0, space)), Integer.parseInt(line.substring(space + 1)));
  }

  private static Iterator<Tuple2<Integer, Double>> shares(
      Iterable<Integer> targets, double rank) {
    List<Integer> all = new ArrayList<>();
    targets.forEach(all::add);
    return all.stream().map(target -> new Tuple2<>(target, rank / all.size())).iterator();
  }
}
