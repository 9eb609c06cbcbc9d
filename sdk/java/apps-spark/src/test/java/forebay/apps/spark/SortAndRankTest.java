package forebay.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import scala.Tuple2;

/** TeraSort and PageRank. */
@ExtendWith(Cluster.Extension.class)
class SortAndRankTest {
  private static final int ROWS = 50_000;
  private static final int PAGES = 2_000;

  @Test
  void teraSort(Cluster cluster) throws Exception {
    for (String base : new String[] {cluster.bb("tera"), cluster.file("tera")}) {
      TeraSort.generate(cluster.hadoop(), ROWS, base + "/in");
      TeraSort.sort(cluster.context(), base + "/in", base + "/out", 3);
    }
    TeraSort.validate(
        cluster.hadoop(), cluster.bb("tera/in"), cluster.bb("tera/out"), cluster.bb("tera/reports"));
    assertEquals(sums(cluster, cluster.file("tera/out")), sums(cluster, cluster.bb("tera/out")));
    assertEquals(Committer.OURS.named(), Committer.of(cluster.hadoop(), cluster.bb("tera/out")));
  }

  /** The names and checksums of a folder's files. */
  private static Map<String, Integer> sums(Cluster cluster, String folder) {
    Map<String, Integer> sums = new TreeMap<>();
    cluster
        .context()
        .binaryFiles(folder)
        .mapToPair(
            file -> {
              String name = file._1.substring(file._1.lastIndexOf('/') + 1);
              return new Tuple2<>(name, Arrays.hashCode(file._2.toArray()));
            })
        .collectAsMap()
        .forEach(sums::put);
    assertFalse(sums.isEmpty());
    return sums;
  }

  @Test
  void pageRank(Cluster cluster) throws IOException {
    Map<Integer, Double> local = ranks(cluster, cluster.file("rank"));
    Map<Integer, Double> ranks = ranks(cluster, cluster.bb("rank"));
    assertEquals(local.keySet(), ranks.keySet());
    // Sums of the same numbers in another order.
    local.forEach((page, rank) -> assertEquals(rank, ranks.get(page), rank * 1e-9));
    assertEquals(Committer.OURS.named(), Committer.of(cluster.hadoop(), cluster.bb("rank/ranks")));
  }

  private static Map<Integer, Double> ranks(Cluster cluster, String base) {
    PageRank.generate(cluster.context(), PAGES, 3, base + "/links");
    PageRank.rank(cluster.context(), base + "/links", base + "/checkpoints", base + "/ranks", 4);
    Map<Integer, Double> ranks = new TreeMap<>();
    for (String line : cluster.context().textFile(base + "/ranks").collect()) {
      String[] parts = line.split(" ");
      ranks.put(Integer.valueOf(parts[0]), Double.valueOf(parts[1]));
    }
    assertFalse(ranks.isEmpty());
    return ranks;
  }
}
