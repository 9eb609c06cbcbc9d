package forebay.hadoop;

import forebay.client.Buffer;
import forebay.client.ForebayException;
import forebay.client.Kind;
import forebay.client.Output;
import forebay.client.WriteOptions;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.ManifestSuccessData;
import org.apache.hadoop.net.NetUtils;

/** The _SUCCESS of a job: JSON as the S3A and manifest committers write it, so that their tools read it. */
final class SuccessFile {
  /** The most names of files that it has. */
  static final int MOST_NAMES = 100;

  private static final long PATIENCE_S = 30;
  private static final long PAUSE_MS = 10;

  private final ManifestSuccessData data = new ManifestSuccessData();
  private long began = System.nanoTime();

  SuccessFile(JobKey key, String durability) {
    data.setName(ManifestSuccessData.NAME);
    data.setCommitter(ForebayCommitter.class.getName());
    data.setJobId(key.job());
    data.setJobIdSource(key.source());
    data.setHostname(NetUtils.getLocalHostname());
    data.setDescription("committed in one step, by a transaction of the buffer");
    data.setSuccess(true);
    data.putDiagnostic(ForebayCommitter.DURABILITY, durability);
  }

  /** Names some of the files of the output. */
  void names(List<String> names) {
    data.setFilenames(new ArrayList<>(names));
  }

  /** Says how many directories the commit has replaced. */
  void replaced(List<String> directories) {
    data.getMetrics().put("replaced_directories", (long) directories.size());
  }

  private void lap(String metric) {
    long now = System.nanoTime();
    data.getMetrics().put(metric, TimeUnit.NANOSECONDS.toMillis(now - began));
    began = now;
  }

  /** Notes that the output is visible to readers. */
  void committed() {
    lap("commit_ms");
  }

  /** Notes that the store has the output. */
  void flushed() {
    lap("flush_ms");
  }

  /** Writes it in one commit, so that no part of it is visible alone. */
  void write(ForebayFileSystem fs, String path, String txn) throws IOException {
    Instant now = Instant.now();
    data.setTimestamp(now.toEpochMilli());
    data.setDate(now.toString());
    data.putDiagnostic("forebay.transaction", txn);
    byte[] json = data.toBytes();
    WriteOptions o = WriteOptions.replace().withMode(fs.fileMode());
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
    while (true) {
      try {
        write(fs.buffer(), path, o, json);
        return;
      } catch (IOException e) {
        // Another job into the same directory writes its own.
        if (ForebayException.kindOf(e) != Kind.BUSY || System.nanoTime() - deadline > 0) {
          throw e;
        }
      }
      try {
        Thread.sleep(PAUSE_MS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted while writing " + path);
      }
    }
  }

  private static void write(Buffer b, String path, WriteOptions o, byte[] json) throws IOException {
    Output out = b.open(path, o);
    try {
      out.write(json, 0, json.length);
    } catch (IOException e) {
      out.abort();
      throw e;
    }
    out.close();
  }
}
