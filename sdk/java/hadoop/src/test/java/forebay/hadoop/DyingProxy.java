package forebay.hadoop;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Forwards sessions to a daemon, frame by frame, and ends a process at its Nth message. The thread
 * in the part of the process is interrupted, and no message passes any more, in either direction.
 *
 * <pre>
 *   process ──▶ 1, 2, … N-1, N ──▶ daemon       before: N does not arrive
 *           ◀── replies …    ✂ ◀──              after: N arrives, and its reply does not
 * </pre>
 */
final class DyingProxy implements Closeable {
  private static final int HEADER = 24; // internal/wire/forebay.proto draws frames

  private final Path path;
  private final UnixDomainSocketAddress daemon;
  private final ServerSocketChannel server;
  private final List<Closeable> open = new ArrayList<>(); // guards itself and dead
  private final List<Thread> threads = new ArrayList<>(); // guards itself
  private Thread process; // these are guarded by this
  private int last = Integer.MAX_VALUE;
  private boolean after;
  private int messages;
  private boolean dead;

  DyingProxy(Path path, String daemon) throws IOException {
    this.path = path;
    this.daemon = UnixDomainSocketAddress.of(daemon.substring("unix://".length()));
    server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    server.bind(UnixDomainSocketAddress.of(path));
    start(this::accept);
  }

  String address() {
    return "unix://" + path;
  }

  /** Has a process die at its nth message from now on. */
  synchronized void end(Thread process, int nth, boolean afterIt) {
    this.process = process;
    last = nth;
    after = afterIt;
    messages = 0;
  }

  /** Reports whether the process has died. */
  synchronized boolean isOver() {
    return dead;
  }

  private void start(Runnable r) {
    Thread t = new Thread(r, "dying-proxy");
    t.setDaemon(true);
    synchronized (threads) {
      threads.add(t);
    }
    t.start();
  }

  private void accept() {
    try {
      while (true) {
        SocketChannel client = server.accept();
        SocketChannel to = SocketChannel.open(daemon);
        boolean late;
        synchronized (open) {
          open.add(client);
          open.add(to);
          late = isOver();
        }
        if (late) {
          close(client);
          close(to);
          continue;
        }
        start(() -> forward(client, to, true));
        start(() -> forward(to, client, false));
      }
    } catch (IOException e) {
      // It was closed.
    }
  }

  private void forward(SocketChannel from, SocketChannel to, boolean requests) {
    ByteBuffer header = ByteBuffer.allocate(HEADER).order(ByteOrder.LITTLE_ENDIAN);
    try {
      while (true) {
        read(from, header.clear());
        ByteBuffer rest = ByteBuffer.allocate(header.getInt(0) + header.getInt(4));
        read(from, rest);
        synchronized (this) {
          if (dead) {
            break;
          }
          boolean now = requests && process != null && ++messages == last;
          if (!now || after) {
            write(to, header.flip());
            write(to, rest.flip());
          }
          if (now) {
            dead = true;
            process.interrupt();
          }
        }
      }
    } catch (IOException e) {
      // One of the two has gone, and so does the other.
    }
    if (isOver()) {
      cut();
    } else {
      close(from);
      close(to);
    }
  }

  private void cut() {
    List<Closeable> all;
    synchronized (open) {
      all = List.copyOf(open);
    }
    all.forEach(DyingProxy::close);
  }

  private static void read(SocketChannel c, ByteBuffer b) throws IOException {
    while (b.hasRemaining()) {
      if (c.read(b) < 0) {
        throw new EOFException();
      }
    }
    // Its limit is its end, and so it can be flipped.
  }

  private static void write(SocketChannel c, ByteBuffer b) throws IOException {
    while (b.hasRemaining()) {
      c.write(b);
    }
  }

  private static void close(Closeable c) {
    try {
      c.close();
    } catch (IOException e) {
      // It is of no use any more either way.
    }
  }

  @Override
  public void close() throws IOException {
    server.close();
    cut();
    List<Thread> all;
    synchronized (threads) {
      all = List.copyOf(threads);
    }
    try {
      for (Thread t : all) {
        t.join();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    Files.deleteIfExists(path);
  }
}
