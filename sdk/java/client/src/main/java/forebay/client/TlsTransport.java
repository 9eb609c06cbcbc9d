package forebay.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SSLSocket;

/** A TCP socket with TLS, whose handshake is done. */
final class TlsTransport implements Transport {
  private static final int SCRATCH = 64 << 10;

  private final SSLSocket socket;
  private final InputStream in;
  private final OutputStream out;
  private final byte[] incoming = new byte[SCRATCH];
  private final byte[] outgoing = new byte[SCRATCH];

  TlsTransport(SSLSocket socket) throws IOException {
    this.socket = socket;
    in = socket.getInputStream();
    out = socket.getOutputStream();
  }

  /**
   * Returns the data that binds proofs to this connection (RFC 9266), or null where the JDK, one
   * before 25, does not export it.
   */
  byte[] channel() {
    try {
      return (byte[])
          ExtendedSSLSession.class
              .getMethod("exportKeyingMaterialData", String.class, byte[].class, int.class)
              .invoke(socket.getSession(), "EXPORTER-Channel-Binding", null, Proof.NONCE);
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }

  @Override
  public int read(ByteBuffer b) throws IOException {
    int n = in.read(incoming, 0, Math.min(incoming.length, b.remaining()));
    if (n > 0) {
      b.put(incoming, 0, n);
    }
    return n;
  }

  @Override
  public void write(ByteBuffer... buffers) throws IOException {
    int n = 0;
    for (ByteBuffer b : buffers) {
      while (b.hasRemaining()) {
        int k = Math.min(b.remaining(), outgoing.length - n);
        b.get(outgoing, n, k);
        n += k;
        if (n == outgoing.length) {
          out.write(outgoing, 0, n);
          n = 0;
        }
      }
    }
    out.write(outgoing, 0, n);
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
