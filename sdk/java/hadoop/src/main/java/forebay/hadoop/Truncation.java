package forebay.hadoop;

import forebay.client.Attributes;
import forebay.client.Buffer;
import forebay.client.Entry;
import forebay.client.Input;
import forebay.client.Output;
import forebay.client.WriteOptions;
import java.io.IOException;
import java.util.UUID;

/**
 * Cuts files. Committed bytes of a file are never taken back in place, so the remaining ones are copied to a
 * file beside it, which then replaces it in one step. Readers, also after a crash, get the whole
 * file or the cut one.
 */
final class Truncation {
  private static final int PIECE = 1 << 20;

  private Truncation() {}

  /** Cuts a closed file to fewer bytes than it has. */
  static void cut(Buffer buffer, Entry file, long length) throws IOException {
    if (length == 0) {
      WriteOptions empty = new WriteOptions(false, false, true, false, 0);
      try (Output out = buffer.open(file.path(), empty)) {
        out.sync();
      }
      return;
    }
    // The name is one that a buffer keeps back from its store.
    String dir = file.path().substring(0, file.path().length() - file.name().length());
    String aside = dir + "." + UUID.randomUUID() + ".tmp";
    boolean done = false;
    try {
      copy(buffer, file, aside, length);
      Entry made = buffer.stat(aside);
      if (made.uid() != file.uid() || made.gid() != file.gid()) {
        buffer.setAttributes(aside, new Attributes(null, file.uid(), file.gid(), null));
      }
      check(file, buffer.stat(file.path()));
      buffer.rename(aside, file.path(), true);
      done = true;
    } finally {
      if (!done) {
        remove(buffer, aside);
      }
    }
  }

  private static void copy(Buffer buffer, Entry file, String to, long length) throws IOException {
    byte[] piece = new byte[(int) Math.min(PIECE, length)];
    WriteOptions made = WriteOptions.createNew().withMode(file.mode());
    try (Input in = buffer.open(file.path());
        Output out = buffer.open(to, made)) {
      check(file, in.entry());
      for (long at = 0; at < length; ) {
        int n = in.read(at, piece, 0, (int) Math.min(piece.length, length - at));
        out.write(piece, 0, n);
        at += n;
      }
    }
  }

  /** Fails if the file was written or replaced meanwhile. */
  private static void check(Entry was, Entry now) throws IOException {
    if (now.file() != was.file() || now.generation() != was.generation()) {
      throw new IOException("cannot truncate " + was.path() + ": it was changed meanwhile");
    }
  }

  /** Only the reason why it is of no use counts. */
  private static void remove(Buffer buffer, String aside) {
    try {
      buffer.remove(aside, false);
    } catch (IOException e) {
      ForebayFileSystem.LOG.warn("left behind {}: {}", aside, e.getMessage());
    }
  }
}
