package forebay.hadoop;

import forebay.client.Entry;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.PathHandle;

/**
 * Refers to a file at its path. Another file there is not meant, nor, if the handle is exact, other
 * content of the same one. As bytes, numbers big endian:
 *
 * <pre>
 *   0         1       2        10             18
 *   ┌─────────┬───────┬────────┬──────────────┬─────────────────────┐
 *   │ version │ exact │ number │ generation   │ bb://BUFFER/path    │
 *   │ 1       │ 0, 1  │ of the file           │ in UTF-8, to the end│
 *   └─────────┴───────┴────────┴──────────────┴─────────────────────┘
 * </pre>
 *
 * @param uri of the file
 * @param file its number, which stays when it is renamed or written again
 * @param generation its content
 * @param exact whether other content is refused
 */
record ForebayPathHandle(String uri, long file, long generation, boolean exact)
    implements PathHandle {
  private static final byte VERSION = 1;
  private static final int FIXED = 1 + 1 + Long.BYTES + Long.BYTES;

  /** Reads the bytes of {@link #bytes}. */
  static ForebayPathHandle of(PathHandle h) throws InvalidPathHandleException {
    if (h instanceof ForebayPathHandle own) {
      return own;
    }
    ByteBuffer b = h.bytes().duplicate();
    if (b.remaining() < FIXED || b.get() != VERSION) {
      throw new InvalidPathHandleException("this release does not support this handle");
    }
    byte exact = b.get();
    long file = b.getLong();
    long generation = b.getLong();
    String uri;
    try {
      uri = StandardCharsets.UTF_8.newDecoder().decode(b).toString();
    } catch (CharacterCodingException e) {
      throw new InvalidPathHandleException("the handle's path is not UTF-8", e);
    }
    if (exact != 0 && exact != 1) {
      throw new InvalidPathHandleException("the handle of " + uri + " says " + exact + " for exact");
    }
    return new ForebayPathHandle(uri, file, generation, exact == 1);
  }

  /** Fails unless an entry, which is at the path, is the one that is meant. */
  void check(Entry now) throws IOException {
    if (now.file() != file) {
      throw new InvalidPathHandleException(uri + " is another file than when the handle was made");
    }
    if (exact && now.generation() != generation) { // a closed generation never changes
      throw new InvalidPathHandleException(
          uri + " has other content than when the handle was made");
    }
  }

  @Override
  public ByteBuffer bytes() {
    byte[] path = uri.getBytes(StandardCharsets.UTF_8);
    return ByteBuffer.allocate(FIXED + path.length)
        .put(VERSION)
        .put((byte) (exact ? 1 : 0))
        .putLong(file)
        .putLong(generation)
        .put(path)
        .flip()
        .asReadOnlyBuffer();
  }
}
