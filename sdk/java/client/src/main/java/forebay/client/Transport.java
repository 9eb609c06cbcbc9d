package forebay.client;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * A connection to a daemon. One thread reads and one writes at a time. Close may be called by any
 * thread, wakes both up, and is idempotent.
 */
interface Transport extends Closeable {
  /** Reads some bytes into b, and returns -1 at the end. */
  int read(ByteBuffer b) throws IOException;

  /** Writes everything that remains in the buffers. */
  void write(ByteBuffer... buffers) throws IOException;
}
