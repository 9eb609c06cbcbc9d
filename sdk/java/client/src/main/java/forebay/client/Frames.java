package forebay.client;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/** The frames of the control protocol, which internal/wire/forebay.proto draws. */
final class Frames {
  static final int HEADER = 24;
  static final int MAX_MESSAGE = 1 << 20;
  static final int MAX_DATA = 4 << 20;

  static final int REPLY = 1;
  static final int ERROR = 2;
  static final int MORE = 4;

  private static final int READ_AHEAD = 64 << 10;

  private Frames() {}

  /** The received bytes are not a frame. Nothing after them on the same connection is valid. */
  static final class MalformedException extends IOException {
    private static final long serialVersionUID = 1;

    MalformedException(String reason) {
      super("malformed frame: " + reason);
    }
  }

  private static int sum(ByteBuffer frame, int start, int message) {
    CRC32C crc = new CRC32C();
    crc.update(frame.duplicate().limit(start + 20).position(start));
    crc.update(frame.duplicate().limit(start + HEADER + message).position(start + HEADER));
    return (int) crc.getValue();
  }

  /** Writes frames. Its callers take turns. */
  static final class Writer {
    private final Transport out;
    private ByteBuffer frame = allocate(8 << 10);

    Writer(Transport out) {
      this.out = out;
    }

    /** Writes one frame with one system call. A malformed one is not begun. */
    void write(int type, int flags, long request, MessageLite m, ByteBuffer data)
        throws IOException {
      int message = m.getSerializedSize();
      int length = data == null ? 0 : data.remaining();
      if (message > MAX_MESSAGE || length > MAX_DATA) {
        throw new MalformedException(
            "a message of " + message + " bytes and data of " + length + " are too large to send");
      }
      if (frame.capacity() < HEADER + message) {
        frame = allocate(HEADER + message);
      }
      frame.clear();
      frame.putInt(message).putInt(length).putLong(request);
      frame.putShort((short) type).putShort((short) flags);
      frame.position(HEADER);
      CodedOutputStream coded = CodedOutputStream.newInstance(frame);
      m.writeTo(coded);
      coded.flush();
      frame.limit(HEADER + message).position(0);
      frame.putInt(20, sum(frame, 0, message));
      if (length == 0) {
        out.write(frame);
      } else {
        out.write(frame, data);
      }
    }
  }

  /** Reads frames. It is for one thread. */
  static final class Reader {
    private final Transport in;
    private ByteBuffer buffer = allocate(READ_AHEAD).limit(0);

    int type;
    int flags;
    long request;
    int dataLength;
    private int message;

    Reader(Transport in) {
      this.in = in;
    }

    /** Reads the next frame's header and message. Its data follows with {@link #data}. */
    void next() throws IOException {
      fill(HEADER);
      int at = buffer.position();
      message = buffer.getInt(at);
      dataLength = buffer.getInt(at + 4);
      request = buffer.getLong(at + 8);
      type = buffer.getShort(at + 16) & 0xffff;
      flags = buffer.getShort(at + 18) & 0xffff;
      if (message < 0 || message > MAX_MESSAGE || dataLength < 0 || dataLength > MAX_DATA) {
        throw new MalformedException(message + " bytes of message and " + dataLength + " of data");
      }
      fill(HEADER + message);
      at = buffer.position();
      if (buffer.getInt(at + 20) != sum(buffer, at, message)) {
        throw new MalformedException("its checksum does not fit");
      }
      buffer.position(at + HEADER + message);
    }

    boolean has(int flag) {
      return (flags & flag) != 0;
    }

    /**
     * Decodes the message of the frame that came last. It is valid until the next call of data or
     * next.
     */
    <T> T decode(Parser<T> parser) throws IOException {
      int end = buffer.position();
      ByteBuffer part = buffer.duplicate().position(end - message).limit(end);
      return parser.parseFrom(CodedInputStream.newInstance(part));
    }

    /** Reads the data of the frame that came last. */
    byte[] data() throws IOException {
      byte[] data = new byte[dataLength];
      int n = Math.min(buffer.remaining(), data.length);
      buffer.get(data, 0, n);
      ByteBuffer rest = ByteBuffer.wrap(data, n, data.length - n);
      while (rest.hasRemaining()) {
        if (in.read(rest) < 0) {
          throw new EOFException("the connection ended in the middle of a frame");
        }
      }
      return data;
    }

    private void fill(int n) throws IOException {
      if (buffer.remaining() >= n) {
        return;
      }
      if (buffer.position() + n > buffer.capacity()) {
        int size = Math.max(n, READ_AHEAD);
        if (size == buffer.capacity()) {
          buffer.compact().flip();
        } else {
          buffer = allocate(size).put(buffer).flip();
        }
      }
      while (buffer.remaining() < n) {
        int from = buffer.position();
        buffer.position(buffer.limit()).limit(buffer.capacity());
        int got = in.read(buffer);
        buffer.flip().position(from);
        if (got < 0) {
          throw new EOFException("the connection ended");
        }
      }
    }
  }

  private static ByteBuffer allocate(int n) {
    return ByteBuffer.allocateDirect(n).order(ByteOrder.LITTLE_ENDIAN);
  }
}
