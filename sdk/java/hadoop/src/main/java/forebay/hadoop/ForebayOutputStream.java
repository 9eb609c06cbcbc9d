package forebay.hadoop;

import forebay.client.Output;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Locale;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

/** A file that is open for writing. All of it may be called concurrently. */
final class ForebayOutputStream extends OutputStream
    implements Syncable, CanSetDropBehind, StreamCapabilities, IOStatisticsSource {
  private static final String HFLUSH_OPS = "op_hflush";
  private static final String HSYNC_OPS = "op_hsync";

  private final Path path;
  private final Output out;
  private final boolean syncs;
  private final FileSystem.Statistics statistics;
  private final IOStatisticsStore counters =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(StreamStatisticNames.STREAM_WRITE_BYTES, HFLUSH_OPS, HSYNC_OPS)
          .build();
  private volatile boolean closed;

  /** Syncs. A commit is enough for a sync, by the buffer's durability. */
  ForebayOutputStream(Path path, Output out, boolean syncs, FileSystem.Statistics statistics) {
    this.path = path;
    this.out = out;
    this.syncs = syncs;
    this.statistics = statistics;
  }

  private void open() throws IOException {
    if (closed) {
      throw new IOException(path + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  @Override
  public void write(int b) throws IOException {
    open();
    try {
      out.write(b);
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
    written(1);
  }

  @Override
  public void write(byte[] b, int off, int len) throws IOException {
    open();
    try {
      out.write(b, off, len);
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
    written(len);
  }

  private void written(int n) {
    counters.incrementCounter(StreamStatisticNames.STREAM_WRITE_BYTES, n);
    statistics.incrementBytesWritten(n);
  }

  /** Does nothing, since there is no buffer between a write and the region. */
  @Override
  public void flush() {}

  /** Makes the written bytes visible to others. They survive this process and the daemon. */
  @Override
  public void hflush() throws IOException {
    counters.incrementCounter(HFLUSH_OPS);
    commit();
  }

  /** Makes the written bytes as durable as the buffer's policy requires. */
  @Override
  public void hsync() throws IOException {
    if (!syncs) {
      throw new UnsupportedOperationException(
          path + ": the buffer's durability is \"flushed\", which an open file cannot be: close it");
    }
    counters.incrementCounter(HSYNC_OPS);
    commit();
  }

  private void commit() throws IOException {
    open();
    try {
      out.sync();
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
  }

  @Override
  public void setDropBehind(Boolean drop) {
    // Eviction from memory is the daemon's decision.
  }

  @Override
  @SuppressWarnings("deprecation") // callers use HFLUSH's name
  public boolean hasCapability(String capability) {
    return switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.HFLUSH,
          StreamCapabilities.DROPBEHIND,
          StreamCapabilities.IOSTATISTICS -> true;
      case StreamCapabilities.HSYNC -> syncs;
      default -> false;
    };
  }

  @Override
  public IOStatistics getIOStatistics() {
    return counters;
  }

  @Override
  public void close() throws IOException {
    closed = true;
    try {
      out.close();
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
  }

  @Override
  public String toString() {
    return "ForebayOutputStream{" + path + ", " + counters + "}";
  }
}
