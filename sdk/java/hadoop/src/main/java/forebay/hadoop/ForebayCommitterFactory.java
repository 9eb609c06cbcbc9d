package forebay.hadoop;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;

/** Makes the committers of outputs on {@code bb://}. forebay-default.xml binds it to the scheme. */
public final class ForebayCommitterFactory extends PathOutputCommitterFactory {
  /** Is called by Hadoop. */
  public ForebayCommitterFactory() {}

  @Override
  public PathOutputCommitter createOutputCommitter(Path output, TaskAttemptContext c)
      throws IOException {
    return new ForebayCommitter(output, c);
  }
}
