package forebay.client;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** A part of a file where it lies in memory. The buffers must not be touched after close. */
public final class Mapping implements Closeable {
  private static final ByteBuffer ZEROS = ByteBuffer.allocateDirect(1 << 20).asReadOnlyBuffer();

  private final Input input;
  private final List<Window> windows = new ArrayList<>();
  private final List<Window.Part> parts = new ArrayList<>();
  private final List<ByteBuffer> buffers = new ArrayList<>();
  private long length;
  private boolean closed;

  Mapping(Input input) {
    this.input = input;
  }

  /** Adds the bytes of [from, end) in a window, and takes over its use. */
  void add(Window w, long from, long end) {
    windows.add(w);
    while (from < end) {
      Window.Part p = w.at(from);
      long to = Math.min(p.end, end);
      if (p.bytes == null) {
        to = Math.min(to, from + ZEROS.capacity());
        buffers.add(ZEROS.slice(0, (int) (to - from)));
      } else {
        int at = p.at + (int) (from - p.start);
        buffers.add(p.bytes.slice(at, (int) (to - from)).asReadOnlyBuffer());
        parts.add(p);
      }
      length += to - from;
      from = to;
    }
  }

  /** Returns the bytes, in order, as read-only buffers. */
  public List<ByteBuffer> buffers() {
    return buffers;
  }

  /** Returns how many bytes there are. */
  public long length() {
    return length;
  }

  /** Checks the bytes against the checksums of the extents that they are in. */
  public void verify() throws IOException {
    for (Window.Part p : parts) {
      p.verify();
    }
  }

  /** Lets go of the memory. It may be called twice. */
  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    windows.forEach(input::done);
    buffers.clear();
  }
}
