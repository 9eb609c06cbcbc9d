package forebay.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A program in Python, started by spark-submit as users do. */
@ExtendWith(Cluster.Extension.class)
class PythonTest {
  private static final int ROWS = 1000;

  @Test
  void writesAndReads(Cluster cluster) throws Exception {
    SparkSession spark = cluster.session();
    Rows.below(spark, ROWS).write().parquet(cluster.bb("python/in"));
    String in = cluster.bb("python/in");
    submit(cluster, "tables.py", in, cluster.bb("python/out"), cluster.file("python/out"));
    for (String format : List.of("orc", "parquet", "text")) {
      Output output = Output.read(spark, format, cluster.bb("python/out/" + format));
      Output local = Output.read(spark, format, cluster.file("python/out/" + format));
      assertEquals(ROWS, output.rows().size());
      assertEquals(local.rows(), output.rows());
      assertEquals(List.of("/_SUCCESS"), output.others());
      // No setting is for Parquet here, for which Spark has a committer of its own.
      Committer by = format.equals("parquet") ? Committer.CLASSIC : Committer.OURS;
      assertEquals(by.named(), Committer.of(cluster.hadoop(), cluster.bb("python/out/" + format)));
    }
  }

  private static void submit(Cluster cluster, String script, String... args)
      throws IOException, InterruptedException {
    String python = System.getProperty("forebay.python");
    List<String> line = new ArrayList<>();
    line.add(Path.of(System.getenv("SPARK_HOME"), "bin", "spark-submit").toString());
    line.addAll(List.of("--master", cluster.master(), "--driver-memory", "512m"));
    line.addAll(List.of("--driver-class-path", cluster.classPath()));
    line.addAll(List.of("--driver-java-options", Cluster.JVM));
    cluster.settings().forEach((key, value) -> line.addAll(List.of("--conf", key + "=" + value)));
    line.add(Path.of(python, script).toString());
    line.addAll(List.of(args));
    Process p = new ProcessBuilder(line).redirectErrorStream(true).start();
    String said = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, p.waitFor(), said);
  }
}
