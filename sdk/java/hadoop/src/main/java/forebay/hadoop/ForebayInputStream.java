package forebay.hadoop;

import forebay.client.Input;
import forebay.client.Mapping;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasEnhancedByteBufferAccess;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;
import org.apache.hadoop.io.ByteBufferPool;

/**
 * A file that is open for reading. Positioned and vectored reads may be called concurrently. Reads
 * at the position are carried out one after the other.
 */
final class ForebayInputStream extends FSInputStream
    implements ByteBufferReadable,
        ByteBufferPositionedReadable,
        HasEnhancedByteBufferAccess,
        CanUnbuffer,
        CanSetReadahead,
        CanSetDropBehind,
        StreamCapabilities,
        IOStatisticsSource {
  private final Path path;
  private final Input in;
  private final FileSystem.Statistics statistics;
  private final IOStatisticsStore counters =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_READ_BYTES,
              StreamStatisticNames.STREAM_READ_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS,
              StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS,
              StreamStatisticNames.STREAM_READ_UNBUFFERED)
          .build();
  private final Map<ByteBuffer, Mapping> mapped = new IdentityHashMap<>(); // guards itself
  private final byte[] single = new byte[1];
  private long position;
  private volatile boolean closed;

  ForebayInputStream(Path path, Input in, FileSystem.Statistics statistics) {
    this.path = path;
    this.in = in;
    this.statistics = statistics;
  }

  private void open() throws IOException {
    if (closed) {
      throw new IOException(path + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  private int count(int n) {
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS);
    if (n > 0) {
      counters.incrementCounter(StreamStatisticNames.STREAM_READ_BYTES, n);
      statistics.incrementBytesRead(n);
    }
    return n;
  }

  private int readAt(long at, byte[] b, int off, int len) throws IOException {
    open();
    try {
      return count(in.read(at, b, off, len));
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
  }

  private int readAt(long at, ByteBuffer b) throws IOException {
    open();
    try {
      return count(in.read(at, b));
    } catch (IOException e) {
      throw Errors.translate(path, e);
    }
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    open();
    if (to < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + to);
    }
    if (to > in.size()) {
      throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + to);
    }
    if (to != position) {
      counters.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS);
      position = to;
    }
  }

  @Override
  public synchronized long getPos() throws IOException {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  @Override
  public synchronized int available() throws IOException {
    open();
    return (int) Math.min(Integer.MAX_VALUE, in.size() - position);
  }

  @Override
  public synchronized long skip(long n) throws IOException {
    open();
    long k = Math.max(0, Math.min(n, in.size() - position));
    seek(position + k);
    return k;
  }

  @Override
  public synchronized int read() throws IOException {
    return read(single, 0, 1) < 0 ? -1 : single[0] & 0xff;
  }

  @Override
  public synchronized int read(byte[] b, int off, int len) throws IOException {
    int n = readAt(position, b, off, len);
    position += Math.max(0, n);
    return n;
  }

  @Override
  public synchronized int read(ByteBuffer b) throws IOException {
    int n = readAt(position, b);
    position += Math.max(0, n);
    return n;
  }

  @Override
  public int read(long at, byte[] b, int off, int len) throws IOException {
    validatePositionedReadArgs(at, b, off, len);
    return readAt(at, b, off, len);
  }

  @Override
  public void readFully(long at, byte[] b, int off, int len) throws IOException {
    validatePositionedReadArgs(at, b, off, len);
    if (readAt(at, b, off, len) < len) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
    }
  }

  @Override
  public int read(long at, ByteBuffer b) throws IOException {
    if (at < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + at);
    }
    return readAt(at, b);
  }

  @Override
  public void readFully(long at, ByteBuffer b) throws IOException {
    int want = b.remaining();
    if (read(at, b) < want) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
    }
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
      throws IOException {
    readVectored(ranges, allocate, b -> {});
  }

  /** Fills each range's buffer straight from memory. There is nothing to gain from joining them. */
  @Override
  public void readVectored(
      List<? extends FileRange> ranges,
      IntFunction<ByteBuffer> allocate,
      Consumer<ByteBuffer> release)
      throws IOException {
    Objects.requireNonNull(release, "release");
    open();
    List<? extends FileRange> sorted =
        VectoredReadUtils.validateAndSortRanges(ranges, Optional.of(in.size()));
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS);
    for (FileRange r : sorted) {
      r.setData(new CompletableFuture<>());
    }
    for (FileRange r : sorted) {
      ByteBuffer b = null;
      try {
        b = allocate.apply(r.getLength());
        b.limit(b.position() + r.getLength());
        ByteBuffer whole = b.duplicate();
        readFully(r.getOffset(), whole);
        b.position(0).limit(r.getLength());
        r.getData().complete(b);
      } catch (IOException | RuntimeException e) {
        if (b != null) {
          release.accept(b);
        }
        r.getData().completeExceptionally(e);
      }
    }
  }

  /** Returns bytes at the position where they lie in memory, until they are released. */
  @Override
  public synchronized ByteBuffer read(ByteBufferPool pool, int max, EnumSet<ReadOption> options)
      throws IOException {
    open();
    if (max < 0) {
      throw new IllegalArgumentException("can't read a negative number of bytes: " + max);
    }
    if (position >= in.size()) {
      return null;
    }
    Mapping m = in.map(position, max);
    if (m.buffers().isEmpty()) {
      m.close();
      return ByteBuffer.allocate(0);
    }
    try {
      if (!options.contains(ReadOption.SKIP_CHECKSUMS)) {
        m.verify();
      }
    } catch (IOException e) {
      m.close();
      throw Errors.translate(path, e);
    }
    ByteBuffer b = m.buffers().get(0);
    synchronized (mapped) {
      mapped.put(b, m);
    }
    position += count(b.remaining());
    return b;
  }

  @Override
  public void releaseBuffer(ByteBuffer b) {
    Mapping m;
    synchronized (mapped) {
      m = mapped.remove(b);
    }
    if (m != null) {
      m.close();
    } else if (b.capacity() > 0) {
      throw new IllegalArgumentException("the buffer is not one that was read from " + path);
    }
  }

  @Override
  public void unbuffer() {
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_UNBUFFERED);
    in.unbuffer();
  }

  @Override
  public void setReadahead(Long n) {
    // Extents are found a window ahead in any case, and are in memory.
  }

  @Override
  public void setDropBehind(Boolean drop) {
    // Eviction from memory is the daemon's decision.
  }

  @Override
  public boolean hasCapability(String capability) {
    return switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.READBYTEBUFFER,
          StreamCapabilities.PREADBYTEBUFFER,
          StreamCapabilities.READAHEAD,
          StreamCapabilities.DROPBEHIND,
          StreamCapabilities.UNBUFFER,
          StreamCapabilities.VECTOREDIO,
          StreamCapabilities.IOSTATISTICS -> true;
      default -> false;
    };
  }

  @Override
  public IOStatistics getIOStatistics() {
    return counters;
  }

  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    closed = true;
    List<Mapping> left;
    synchronized (mapped) {
      left = List.copyOf(mapped.values());
      mapped.clear();
    }
    left.forEach(Mapping::close);
    in.close();
  }

  @Override
  public String toString() {
    return "ForebayInputStream{" + path + ", " + counters + "}";
  }
}
