package forebay.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.FileOutputCommitter;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.JobContextImpl;
import org.apache.hadoop.mapred.OutputCommitter;
import org.apache.hadoop.mapred.RecordWriter;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.TaskAttemptContextImpl;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TextOutputFormat;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.ManifestSuccessData;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.example.ExampleOutputFormat;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The ways in which a job comes to its committer. */
@Timeout(120)
class CommitterBindingTest {
  @BeforeEach
  void start() throws Exception {
    Daemon.get().start();
  }

  /** A JVM of its own, in which nothing of Hadoop was loaded before. */
  public static final class Asker {
    private Asker() {}

    /** Prints the class of the committer that an output format gives for a path. */
    public static void main(String[] args) throws Exception {
      Configuration conf = new Configuration();
      conf.set(ForebayFileSystem.ADDRESS, args[0]);
      CommitterJob job = new CommitterJob(conf, new Path(args[1]));
      org.apache.hadoop.mapreduce.lib.output.TextOutputFormat<String, String> format =
          new org.apache.hadoop.mapreduce.lib.output.TextOutputFormat<>();
      format.checkOutputSpecs(job.context());
      System.out.println(format.getOutputCommitter(job.attempt(0, 0)).getClass().getName());
    }
  }

  /** No configuration is needed, also in a process that begins with this job. */
  @Test
  void byTheSchemeAlone() throws Exception {
    Process p =
        new ProcessBuilder(
                java.nio.file.Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx128m",
                "-cp",
                System.getProperty("java.class.path"),
                Asker.class.getName(),
                Daemon.get().socket(),
                CommitterJob.directory("asked").toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    String said = new String(p.getInputStream().readAllBytes()).trim();
    assertEquals(0, p.waitFor());
    assertEquals(ForebayCommitter.class.getName(), said);
  }

  private static JobConf older(Path output) {
    JobConf conf = new JobConf(CommitterJob.resident());
    conf.setInt("mapreduce.fileoutputcommitter.algorithm.version", 1);
    conf.setOutputCommitter(ForebayMapredCommitter.class);
    org.apache.hadoop.mapred.FileOutputFormat.setOutputPath(conf, output);
    return conf;
  }

  /** The older interface makes a committer for every step, from the configuration. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void theOlderInterface(boolean ours) throws Exception {
    Path local = new Path(Files.createTempDirectory(Daemon.get().dir(), "out").toUri());
    Path output = ours ? CommitterJob.directory("mapred") : new Path(local, "out");
    JobConf conf = older(output);
    FileSystem fs = output.getFileSystem(conf);
    String number = output.getName().replaceAll("\\D", "") + System.nanoTime();
    TaskAttemptID[] ids = new TaskAttemptID[3];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = new TaskAttemptID(number, 1, TaskType.MAP, i, 0);
    }
    JobContextImpl job = new JobContextImpl(conf, ids[0].getJobID());
    OutputCommitter driver = assertInstanceOf(FileOutputCommitter.class, conf.getOutputCommitter());
    driver.setupJob(job);
    for (TaskAttemptID id : ids) {
      JobConf task = new JobConf(conf);
      task.set("mapreduce.task.attempt.id", id.toString());
      TaskAttemptContextImpl c = new TaskAttemptContextImpl(task, id);
      OutputCommitter committer = task.getOutputCommitter();
      committer.setupTask(c);
      // As MapReduce's Task does before it runs the user's code.
      Path work = ((FileOutputCommitter) committer).getTaskAttemptPath(c);
      task.set("mapreduce.task.output.dir", work.toString());
      RecordWriter<String, String> w =
          new TextOutputFormat<String, String>()
              .getRecordWriter(fs, task, "part-" + id.getTaskID().getId(), Reporter.NULL);
      w.write("key", "value");
      w.close(Reporter.NULL);
      assertTrue(committer.needsTaskCommit(c));
      if (id == ids[2]) {
        conf.getOutputCommitter().abortTask(c);
        assertFalse(committer.needsTaskCommit(c));
      } else {
        committer.commitTask(c);
      }
      assertEquals(List.of(), files(fs, output), "before the job is committed");
    }
    driver.commitJob(job);
    assertEquals(List.of("part-0", "part-1"), files(fs, output));
    Path success = new Path(output, "_SUCCESS");
    assertEquals(ours, fs.getFileStatus(success).getLen() > 0);
    assertEquals(ours, driver.isCommitJobRepeatable(job));
  }

  private static List<String> files(FileSystem fs, Path output) throws IOException {
    return fs.exists(output)
        ? CommitterJob.files(fs, output).keySet().stream()
            .filter(f -> !f.contains("_temporary"))
            .filter(f -> !f.contains("/"))
            .toList()
        : List.of();
  }

  /** Parquet writes with our committer on bb://, with the classic one elsewhere. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void parquet(boolean ours) throws Exception {
    Path local = new Path(Files.createTempDirectory(Daemon.get().dir(), "out").toUri());
    Path output = ours ? CommitterJob.directory("parquet") : new Path(local, "out");
    CommitterJob job = new CommitterJob(CommitterJob.resident(), output);
    job.conf.setInt("mapreduce.fileoutputcommitter.algorithm.version", 1);
    MessageType schema = MessageTypeParser.parseMessageType("message m { required int32 x; }");
    job.conf.set("parquet.example.schema", schema.toString());
    job.conf.set(ParquetOutputFormat.JOB_SUMMARY_LEVEL, "ALL");
    job.conf.set(
        ParquetOutputFormat.WRITER_VERSION, ParquetProperties.WriterVersion.PARQUET_1_0.toString());
    TaskAttemptContext c = job.attempt(0, 0);
    ForebayParquetCommitter committer = new ForebayParquetCommitter(output, c);
    committer.setupJob(job.context());
    committer.setupTask(c);
    FileSystem fs = output.getFileSystem(job.conf);
    org.apache.hadoop.mapreduce.RecordWriter<Void, Group> w =
        new ExampleOutputFormat()
            .getRecordWriter(c, new Path(committer.getWorkPath(), "part-0.parquet"));
    w.write(null, new SimpleGroupFactory(schema).newGroup().append("x", 7));
    w.close(c);
    assertTrue(committer.needsTaskCommit(c));
    committer.commitTask(c);
    assertFalse(fs.exists(new Path(output, "part-0.parquet")));
    committer.commitJob(job.context());
    List<String> names = new ArrayList<>();
    for (var s : fs.listStatus(output)) {
      names.add(s.getPath().getName());
    }
    names.removeIf(n -> n.startsWith("."));
    names.sort(null);
    assertEquals(
        List.of("_SUCCESS", "_common_metadata", "_metadata", "part-0.parquet"), names);
    if (ours) {
      ManifestSuccessData said = ManifestSuccessData.load(fs, new Path(output, "_SUCCESS"));
      assertEquals(ForebayCommitter.class.getName(), said.getCommitter());
    }
    assertEquals(ours, committer.isCommitJobRepeatable(job.context()));
    committer.abortJob(job.context(), JobStatus.State.FAILED);
    assertTrue(fs.exists(new Path(output, "part-0.parquet")));
  }
}
