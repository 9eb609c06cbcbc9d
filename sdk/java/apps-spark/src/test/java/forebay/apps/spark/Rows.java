package forebay.apps.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Rows that tests write: a number, a text that goes with it, and a key to partition tables by. */
final class Rows {
  static final int KEYS = 5;
  private static final int TASKS = 6;
  private static final StructType SCHEMA =
      new StructType()
          .add("number", DataTypes.IntegerType, false)
          .add("text", DataTypes.StringType, false)
          .add("key", DataTypes.IntegerType, false);

  private Rows() {}

  /** Returns rows with the numbers below an end, which several tasks make. */
  static Dataset<Row> below(SparkSession spark, int end, Fault fault) {
    List<Integer> tasks = IntStream.range(0, TASKS).boxed().toList();
    JavaSparkContext context = JavaSparkContext.fromSparkContext(spark.sparkContext());
    return spark.createDataFrame(
        context
            .parallelize(new ArrayList<>(tasks), TASKS)
            .mapPartitions(task -> new Part(task.next(), end, fault)),
        SCHEMA);
  }

  static Dataset<Row> below(SparkSession spark, int end) {
    return below(spark, end, Fault.NONE);
  }

  /** The rows of one task. */
  private static final class Part implements Iterator<Row> {
    private final int end;
    private final int middle;
    private final Fault fault;
    private int next;

    Part(int task, int end, Fault fault) {
      this.end = end;
      this.fault = fault;
      middle = task + TASKS * (end / 2 / TASKS);
      next = task;
    }

    @Override
    public boolean hasNext() {
      return next < end;
    }

    @Override
    public Row next() {
      int n = next;
      next += TASKS;
      if (n == middle) {
        fault.strike(TaskContext.get());
      }
      return RowFactory.create(n, "row " + n * 31L, n % KEYS);
    }
  }
}
