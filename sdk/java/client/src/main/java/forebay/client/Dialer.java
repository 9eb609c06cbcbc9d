package forebay.client;

import com.google.protobuf.ByteString;
import com.sun.security.auth.module.UnixSystem;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;

/**
 * Opens the sessions that a client has one after the other with the daemon that the options name. Once
 * one has begun, the daemon carries out no further request of those before. One caller at a time may
 * dial.
 */
final class Dialer {
  /** The versions of the control protocol of this client (internal/wire/version.go). */
  static final int MIN_VERSION = 1;

  static final int MAX_VERSION = 2;

  private static final int CONNECTION_BYTES = 16;
  private static final long HANDSHAKE_MS = 10_000;
  private static final long FIRST_PAUSE_MS = 5;
  private static final long LAST_PAUSE_MS = 500;

  private final List<String> addresses;
  private final String name;
  private final Secrets secrets;
  private final Credentials tls; // null: without TLS
  private final ByteString connection; // the name of the succession
  private long last; // session of it

  Dialer(ClientOptions o) throws IOException {
    addresses = addresses(o.address());
    byte[] random = new byte[CONNECTION_BYTES];
    new SecureRandom().nextBytes(random);
    connection = ByteString.copyFrom(random);
    name = o.name() == null ? "java" : o.name();
    boolean far = false;
    for (String a : addresses) {
      if (!a.startsWith("unix://") && !a.startsWith("tcp://")) {
        throw new ForebayException(
            Kind.INVALID,
            "dial",
            a,
            "is no address of a daemon",
            "write unix:///path or tcp://host:port");
      }
      far |= a.startsWith("tcp://");
    }
    // Files that the environment names may be a daemon's, which another user need not read.
    secrets = far ? Secrets.read(o) : new Secrets(List.of(), null);
    tls = far ? credentials(o) : null;
  }

  private static Credentials credentials(ClientOptions o) throws IOException {
    ClientOptions.TlsFiles f = o.tls() == null ? new ClientOptions.TlsFiles(null, null, null) : o.tls();
    Path ca = Secrets.orEnv(f.ca(), "FOREBAY_TLS_CA");
    Path cert = Secrets.orEnv(f.cert(), "FOREBAY_TLS_CERT");
    Path key = Secrets.orEnv(f.key(), "FOREBAY_TLS_KEY");
    return ca == null && cert == null && key == null ? null : Credentials.load(ca, cert, key);
  }

  static List<String> addresses(String asked) {
    List<String> list = new ArrayList<>();
    String env = System.getenv("FOREBAY_SOCKET");
    String all = asked != null && !asked.isEmpty() ? asked : env == null ? "" : env;
    for (String a : all.split(",")) {
      if (!a.isEmpty()) {
        list.add(a.startsWith("/") ? "unix://" + a : a);
      }
    }
    if (!list.isEmpty()) {
      return list;
    }
    String runtime = System.getenv("XDG_RUNTIME_DIR");
    if (runtime != null && !runtime.isEmpty()) {
      list.add("unix://" + runtime + "/forebay/bbd.sock");
    }
    list.add("unix:///run/forebay/bbd.sock");
    String tmp = System.getenv("TMPDIR");
    long uid = new UnixSystem().getUid();
    Path dir = Path.of(tmp == null || tmp.isEmpty() ? "/tmp" : tmp, "forebay-" + uid);
    if (isPrivate(dir, uid)) {
      list.add("unix://" + dir + "/bbd.sock");
    }
    return list;
  }

  /** Anybody may make a folder of this name, and pretend to be a daemon there. */
  private static boolean isPrivate(Path dir, long uid) {
    try {
      return Files.isDirectory(dir)
          && !Files.isSymbolicLink(dir)
          && ((Number) Files.getAttribute(dir, "unix:uid")).longValue() == uid
          && PosixFilePermissions.toString(Files.getPosixFilePermissions(dir)).endsWith("------");
    } catch (IOException e) {
      return false;
    }
  }

  /** Returns the token that is proven over TCP, or null without one. */
  Token token() {
    return secrets.token();
  }

  /** Opens a session with the first daemon that answers. */
  Session dial() throws IOException {
    IOException last = null;
    for (String a : addresses) {
      try {
        return dialOne(a);
      } catch (ForebayException e) {
        if (e.kind() != Kind.UNAVAILABLE) {
          throw e; // there is a daemon, and it refused, or the address is wrong
        }
        last = e;
      } catch (AccessDeniedException e) {
        if (addresses.size() == 1) {
          throw new ForebayException(Kind.PERMISSION, "dial", a, String.valueOf(e.getMessage()));
        }
        last = e; // another user's: this user's own daemon may be about to start
      } catch (InterruptedIOException e) {
        throw e;
      } catch (IOException e) {
        last = e;
      }
    }
    throw new ForebayException(
        Kind.UNAVAILABLE,
        "dial",
        String.join(", ", addresses),
        "",
        "no daemon answers there: " + last.getMessage(),
        "start one: bbd --dev",
        last);
  }

  /** Dials until a daemon answers or the time is over. */
  Session redial(Duration time) throws IOException {
    long deadline = System.nanoTime() + time.toNanos();
    for (long pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LAST_PAUSE_MS)) {
      try {
        return dial();
      } catch (ForebayException e) {
        long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (e.kind() != Kind.UNAVAILABLE || left <= 0) {
          throw e;
        }
        sleep(Math.min(pause, left));
      }
    }
  }

  private static void sleep(long ms) throws InterruptedIOException {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while looking for a daemon");
    }
  }

  private Session dialOne(String address) throws IOException {
    boolean unix = address.startsWith("unix://");
    SocketChannel channel;
    if (unix) {
      channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    } else {
      channel = SocketChannel.open();
    }
    boolean done = false;
    try {
      if (unix) {
        channel.connect(UnixDomainSocketAddress.of(address.substring("unix://".length())));
      } else {
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.connect(hostAndPort(address));
      }
      Session s;
      if (unix || tls == null) {
        s = handshake(new ChannelTransport(channel), address, new byte[0]);
      } else {
        s = secure(channel, address);
      }
      done = true;
      return s;
    } catch (ClosedByInterruptException e) {
      throw new InterruptedIOException("interrupted while dialling " + address);
    } finally {
      if (!done) {
        channel.close();
      }
    }
  }

  private Session secure(SocketChannel channel, String address) throws IOException {
    InetSocketAddress at = hostAndPort(address);
    AtomicBoolean late = new AtomicBoolean();
    SSLSocket socket = tls.over(channel.socket(), at.getHostString(), at.getPort());
    try {
      Thread watch = watchdog(socket, late);
      try {
        socket.startHandshake();
      } finally {
        watch.interrupt();
      }
      TlsTransport transport = new TlsTransport(socket);
      return handshake(transport, address, transport.channel());
    } catch (SSLException e) {
      throw new ForebayException(
          Kind.PERMISSION,
          "dial",
          address,
          "",
          "TLS: " + e.getMessage(),
          "give the authority that signs the daemons' certificates, and a client's that it signed",
          e);
    }
  }

  private static InetSocketAddress hostAndPort(String address) throws IOException {
    String rest = address.substring("tcp://".length());
    int colon = rest.lastIndexOf(':');
    try {
      String host = rest.substring(0, colon).replaceAll("^\\[|\\]$", "");
      return new InetSocketAddress(
          InetAddress.getByName(host), Integer.parseInt(rest.substring(colon + 1)));
    } catch (IllegalArgumentException | StringIndexOutOfBoundsException e) {
      throw new ForebayException(
          Kind.INVALID, "dial", address, "is no address of a daemon", "write tcp://host:port");
    }
  }

  /** Introduces the client, and proves a key if the daemon requires it. */
  private Session handshake(Transport transport, String address, byte[] channel)
      throws IOException {
    AtomicBoolean late = new AtomicBoolean();
    Thread watch = watchdog(transport, late);
    Frames.Reader in = new Frames.Reader(transport);
    Frames.Writer out = new Frames.Writer(transport);
    UnixSystem me = new UnixSystem();
    Forebay.Hello.Builder b =
        Forebay.Hello.newBuilder()
            .setMinVersion(MIN_VERSION)
            .setMaxVersion(MAX_VERSION)
            .setClient(name)
            .setPid((int) ProcessHandle.current().pid())
            .setUid((int) me.getUid())
            .setGid((int) me.getGid())
            .setConnection(connection)
            .setSuccession(++last);
    if (secrets.token() != null) {
      b.setToken(ByteString.copyFrom(secrets.token().claims()));
    }
    if (!secrets.keys().isEmpty()) {
      byte[] nonce = new byte[Proof.NONCE];
      new SecureRandom().nextBytes(nonce);
      b.setNonce(ByteString.copyFrom(nonce));
    }
    Forebay.Hello hello = b.build();
    long last = 1;
    try {
      out.write(Type.TYPE_HELLO_VALUE, 0, last, hello, null);
      in.next();
      if (in.has(Frames.MORE)) {
        prove(in, out, hello, ++last, address, channel);
      }
      if (in.has(Frames.ERROR)) {
        throw Session.asException(Forebay.Type.TYPE_HELLO, in.decode(Forebay.Error.parser()));
      }
      Forebay.Welcome welcome = in.decode(Forebay.Welcome.parser());
      int version = welcome.getVersion();
      if (!in.has(Frames.REPLY) || version < MIN_VERSION || version > MAX_VERSION) {
        throw new ForebayException(
            Kind.UNSUPPORTED,
            "dial",
            address,
            "the daemon, " + welcome.getServer() + ", chose protocol version " + version,
            "install releases with a version in common on both sides");
      }
      return new Session(transport, in, out, last, welcome, address);
    } catch (Frames.MalformedException e) {
      throw new ForebayException(
          Kind.INVALID, "dial", address, "the server is not a daemon: " + e.getMessage());
    } catch (ForebayException e) {
      throw e;
    } catch (IOException e) {
      throw late.get()
          ? new IOException("no answer to the handshake in " + HANDSHAKE_MS + " ms", e)
          : e;
    } finally {
      watch.interrupt();
    }
  }

  private void prove(
      Frames.Reader in,
      Frames.Writer out,
      Forebay.Hello hello,
      long request,
      String address,
      byte[] channel)
      throws IOException {
    Forebay.Challenge c = in.decode(Forebay.Challenge.parser());
    if (secrets.keys().isEmpty()) {
      throw new ForebayException(
          Kind.PERMISSION,
          "dial",
          address,
          "the daemon requires a proof of the shared key",
          "give the key file, a token or a certificate");
    }
    if (channel == null) {
      throw new ForebayException(
          Kind.UNSUPPORTED,
          "dial",
          address,
          "a JDK before 25 cannot bind a key's or a token's proof to a TLS connection",
          "give a client's certificate, or use a newer JDK");
    }
    Proof proof = new Proof(hello.getNonce().toByteArray(), c.getNonce().toByteArray(), channel);
    byte[] key = proof.common(c.getProof().toByteArray(), secrets.keys());
    if (key == null) {
      boolean token = secrets.token() != null;
      throw new ForebayException(
          Kind.PERMISSION,
          "dial",
          address,
          "the daemon did not prove the " + (token ? "token" : "shared key"),
          token
              ? "make one with bbctl token at a daemon of this cluster; its key may have been replaced"
              : "give both sides the same key file");
    }
    Forebay.Prove m =
        Forebay.Prove.newBuilder()
            .setProof(ByteString.copyFrom(proof.client(key, hello)))
            .build();
    out.write(Type.TYPE_PROVE_VALUE, 0, request, m, null);
    in.next();
  }

  /** Bounds the wait for a server that is no daemon, since blocking channels have no time limit. */
  private static Thread watchdog(Closeable transport, AtomicBoolean late) {
    Thread t =
        new Thread(
            () -> {
              try {
                Thread.sleep(HANDSHAKE_MS);
                late.set(true);
                transport.close();
              } catch (InterruptedException | IOException e) {
                // The handshake is over.
              }
            },
            "forebay-handshake");
    t.setDaemon(true);
    t.start();
    return t;
  }
}
