package forebay.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.task.JobContextImpl;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;

/** A job whose every step a test takes itself, in whichever process it plays. */
final class CommitterJob {
  static final String BUFFER = "committer";
  private static final AtomicInteger NUMBERS = new AtomicInteger();

  final Configuration conf;
  final Path output;
  final JobID id;

  /** A job into a directory, with a configuration of its own. */
  CommitterJob(Configuration base, Path output) throws IOException {
    this.output = output;
    id = new JobID(UUID.randomUUID().toString().replace("-", ""), NUMBERS.incrementAndGet());
    conf = new Configuration(base);
    conf.set(FileOutputFormat.OUTDIR, output.toString());
  }

  /** Returns a configuration for jobs that need not wait for the store. */
  static Configuration resident() {
    Configuration c = TestBuffer.conf(BUFFER);
    c.set(ForebayCommitter.DURABILITY, "resident");
    return c;
  }

  /** Returns a directory that no other test uses. */
  static Path directory(String name) {
    URI root = TestBuffer.uri(BUFFER);
    return new Path(root + "/" + name + NUMBERS.incrementAndGet());
  }

  JobContext context() {
    return new JobContextImpl(conf, id);
  }

  TaskAttemptContext attempt(int task, int attempt) {
    TaskAttemptID a = new TaskAttemptID(new TaskID(id, TaskType.MAP, task), attempt);
    return new TaskAttemptContextImpl(conf, a);
  }

  /** Returns a committer as the job's driver has it. */
  ForebayCommitter driver() throws IOException {
    return new ForebayCommitter(output, context());
  }

  ForebayCommitter of(TaskAttemptContext c) throws IOException {
    return new ForebayCommitter(output, c);
  }

  ForebayCommitter setup() throws IOException {
    ForebayCommitter driver = driver();
    driver.setupJob(context());
    return driver;
  }

  /** Writes files as an attempt, each with the attempt's id in it. */
  ForebayCommitter write(TaskAttemptContext c, String... files) throws IOException {
    ForebayCommitter committer = of(c);
    committer.setupTask(c);
    Path work = committer.getWorkPath();
    FileSystem fs = work.getFileSystem(conf);
    for (String f : files) {
      try (OutputStream out = fs.create(new Path(work, f))) {
        out.write(c.getTaskAttemptID().toString().getBytes(StandardCharsets.UTF_8));
      }
    }
    return committer;
  }

  /** Is a task from its beginning to its commit. */
  void task(int task, int attempt, String... files) throws IOException {
    TaskAttemptContext c = attempt(task, attempt);
    ForebayCommitter committer = write(c, files);
    if (committer.needsTaskCommit(c)) {
      committer.commitTask(c);
    }
  }

  /** Returns the files below a directory, their paths relative to it, without hidden ones. */
  static TreeMap<String, Path> files(FileSystem fs, Path dir) throws IOException {
    TreeMap<String, Path> all = new TreeMap<>();
    for (FileStatus s : fs.listStatus(dir)) {
      String name = s.getPath().getName();
      if (s.isDirectory()) {
        files(fs, s.getPath()).forEach((f, p) -> all.put(name + "/" + f, p));
      } else if (!name.startsWith("_")) {
        all.put(name, s.getPath());
      }
    }
    return all;
  }

  /** Returns the names of the files of the output, or none if it is not there. */
  List<String> files() throws IOException {
    try {
      return new ArrayList<>(files(output.getFileSystem(conf), output).keySet());
    } catch (FileNotFoundException e) {
      return List.of();
    }
  }

  boolean succeeded() throws IOException {
    return output.getFileSystem(conf).exists(new Path(output, "_SUCCESS"));
  }

  /** Returns the content of a file of the output. */
  String text(String file) throws IOException {
    try (var in = output.getFileSystem(conf).open(new Path(output, file))) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
