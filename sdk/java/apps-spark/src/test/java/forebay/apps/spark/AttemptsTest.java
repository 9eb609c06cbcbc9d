package forebay.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tasks that are attempted more than once. Their rows are in the output once. */
@ExtendWith(Cluster.Extension.class)
@Timeout(600)
class AttemptsTest {
  private static final int ROWS = 3000;
  private static final int PARTITION = 3;

  @ParameterizedTest
  @EnumSource
  void executorKilled(Committer committer, Cluster cluster) throws IOException {
    SparkSession spark = cluster.session(committer.settings());
    String name = "killed-" + committer;
    Path folder = cluster.shared(name);
    Rows.below(spark, ROWS, Fault.killed(PARTITION, folder)).write().orc(cluster.bb(name));
    assertTrue(Files.exists(folder.resolve("killed")), "no executor was killed");
    assertAsOnDisk(spark, cluster, name, committer);
  }

  @ParameterizedTest
  @EnumSource
  @Tag(Cluster.TWO_HOSTS)
  void slowAttemptGoesOnAfterTheJob(Committer committer, Cluster cluster) throws IOException {
    SparkSession spark = cluster.session(committer.settings());
    String name = "slow-" + committer;
    Path folder = cluster.shared(name);
    // Ends only if Spark runs a second attempt, since the first one waits for a later step.
    Rows.below(spark, ROWS, Fault.slow(PARTITION, folder)).write().parquet(cluster.bb(name));
    assertFalse(Files.exists(folder.resolve("ended")), "the slow attempt was not slow");
    Output before = Output.read(spark, "parquet", cluster.bb(name));

    Files.createFile(folder.resolve("go"));
    Fault.waitFor(folder.resolve("ended"));
    assertEquals(before, Output.read(spark, "parquet", cluster.bb(name)));
    Rows.below(spark, ROWS).write().parquet(cluster.file(name));
    assertEquals(Output.read(spark, "parquet", cluster.file(name)).rows(), before.rows());
    assertEquals(committer.named(), Committer.of(cluster.hadoop(), cluster.bb(name)));
  }

  private static void assertAsOnDisk(
      SparkSession spark, Cluster cluster, String name, Committer committer) throws IOException {
    Rows.below(spark, ROWS).write().orc(cluster.file(name));
    Output output = Output.read(spark, "orc", cluster.bb(name));
    assertEquals(ROWS, output.rows().size());
    assertEquals(Output.read(spark, "orc", cluster.file(name)).rows(), output.rows());
    assertEquals(List.of("/_SUCCESS"), output.others());
    assertEquals(committer.named(), Committer.of(cluster.hadoop(), cluster.bb(name)));
  }
}
