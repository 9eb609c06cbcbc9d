package forebay.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/** A unix or TCP socket without TLS. */
final class ChannelTransport implements Transport {
  private final SocketChannel channel;

  ChannelTransport(SocketChannel channel) {
    this.channel = channel;
  }

  @Override
  public int read(ByteBuffer b) throws IOException {
    return channel.read(b);
  }

  @Override
  public void write(ByteBuffer... buffers) throws IOException {
    // A channel is closed under an interrupted thread, and this one is shared by many.
    boolean interrupted = Thread.interrupted();
    try {
      int i = 0;
      while (i < buffers.length) {
        if (i == buffers.length - 1) {
          channel.write(buffers[i]);
        } else {
          channel.write(buffers, i, buffers.length - i);
        }
        while (i < buffers.length && !buffers[i].hasRemaining()) {
          i++;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
