package forebay.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Tables that are written, overwritten and overwritten in part, as on a local disk. */
@ExtendWith(Cluster.Extension.class)
class WritesTest {
  private static final int MANY = 3000;
  private static final int FEW = 600;

  static Stream<Arguments> formatsAndCommitters() {
    return Stream.of("parquet", "orc")
        .flatMap(f -> Stream.of(Committer.values()).map(c -> Arguments.of(f, c)));
  }

  @ParameterizedTest
  @MethodSource("formatsAndCommitters")
  void overwrite(String format, Committer committer, Cluster cluster) throws IOException {
    SparkSession spark = cluster.session(committer.settings());
    String name = "overwrite-" + format + "-" + committer;
    for (String table : List.of(cluster.bb(name), cluster.file(name))) {
      write(Rows.below(spark, MANY), format, "static", table);
      write(Rows.below(spark, FEW).where("key <> 2"), format, "static", table);
    }
    Output output = Output.read(spark, format, cluster.bb(name));
    assertEquals(FEW - FEW / Rows.KEYS, output.rows().size());
    assertEquals(List.of("/_SUCCESS"), output.others());
    assertEquals(local(spark, format, cluster.file(name)), output);
    assertEquals(committer.named(), Committer.of(cluster.hadoop(), cluster.bb(name)));
  }

  @ParameterizedTest
  @MethodSource("formatsAndCommitters")
  void overwritePartitions(String format, Committer committer, Cluster cluster) throws IOException {
    SparkSession spark = cluster.session(committer.settings());
    String name = "dynamic-" + format + "-" + committer;
    for (String table : List.of(cluster.bb(name), cluster.file(name))) {
      write(Rows.below(spark, MANY).where("key <> 4"), format, "static", table);
      write(Rows.below(spark, FEW).where("key = 1 or key = 4"), format, "dynamic", table);
    }
    Output output = Output.read(spark, format, cluster.bb(name));
    // Of keys 0, 2 and 3 all the old rows, of 1 and 4 the new ones.
    assertEquals(3 * MANY / Rows.KEYS + 2 * FEW / Rows.KEYS, output.rows().size());
    assertEquals(List.of("/_SUCCESS"), output.others());
    assertEquals(local(spark, format, cluster.file(name)), output);
    assertEquals(committer.named(), Committer.of(cluster.hadoop(), cluster.bb(name)));
  }

  private static void write(Dataset<Row> rows, String format, String mode, String table) {
    rows.write()
        .format(format)
        .mode(SaveMode.Overwrite)
        .option("partitionOverwriteMode", mode)
        .partitionBy("key")
        .save(table);
  }

  /** The files on the local disk, without the checksums that Hadoop keeps beside files there. */
  private static Output local(SparkSession spark, String format, String table) throws IOException {
    Output all = Output.read(spark, format, table);
    return new Output(
        all.rows(),
        all.folders(),
        all.others().stream().filter(f -> !f.endsWith(".crc")).toList());
  }
}
