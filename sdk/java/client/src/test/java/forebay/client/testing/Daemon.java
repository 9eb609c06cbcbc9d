package forebay.client.testing;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A real bbd, one for all tests of a JVM, which can be killed and started again. */
public final class Daemon {
  private static final long PATIENCE_S = 60;
  private static Daemon shared;

  private final Path dir;
  private final Path state;
  private final Path memory;
  private final Path keyFile;
  private final int port;
  private final Path bin = Path.of(System.getProperty("forebay.bin")).normalize();
  private Process process;

  private final List<String> further;

  /** Starts one with further arguments, which is stopped when the JVM ends. */
  public Daemon(String... args) throws IOException, InterruptedException {
    further = List.of(args);
    // A unix socket's path has at most 107 bytes.
    dir = Files.createTempDirectory(Path.of("/tmp"), "bbdjava");
    state = Files.createDirectory(dir.resolve("bbd"));
    memory = Files.createTempDirectory(Path.of("/dev/shm"), "bbdjava");
    keyFile = dir.resolve("test.key");
    Files.createFile(
        keyFile, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    Files.writeString(keyFile, "0123456789abcdef".repeat(4) + "\n");
    try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = s.getLocalPort();
    }
    Runtime.getRuntime().addShutdownHook(new Thread(this::remove));
    start();
  }

  /** Returns the daemon, which runs. */
  public static synchronized Daemon get() {
    try {
      if (shared == null) {
        shared = new Daemon();
      }
      return shared;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns where it listens on this machine. */
  public String socket() {
    return "unix://" + state.resolve("bbd.sock");
  }

  /** Returns where it listens for clients elsewhere. */
  public String tcp() {
    return "tcp://127.0.0.1:" + port;
  }

  /** Returns the file of the key that clients elsewhere prove to have. */
  public Path keyFile() {
    return keyFile;
  }

  /** Returns the id of its process, which runs. */
  public synchronized long pid() {
    return process.pid();
  }

  /** Returns a folder for files of tests. */
  public Path dir() {
    return dir;
  }

  /** Starts it, if it does not run, and waits until it serves. */
  public synchronized void start() throws IOException, InterruptedException {
    if (process != null && process.isAlive()) {
      return;
    }
    List<String> line = new ArrayList<>();
    line.add(bin.resolve("bbd").toString());
    line.addAll(List.of("--dev", "--dir", state.toString(), "--memory", "512MiB"));
    line.addAll(List.of("--memory-mount", "off", "--memory-dir", memory.toString()));
    line.addAll(List.of("--listen-tcp", "127.0.0.1:" + port, "--key-file", keyFile.toString()));
    line.addAll(List.of("--disk-dir", dir.resolve("disk").toString(), "--disk-size", "1GiB"));
    line.addAll(further);
    File log = dir.resolve("bbd.log").toFile();
    ProcessBuilder builder =
        new ProcessBuilder(line)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log));
    if (!engine().isEmpty()) {
      builder.environment().put("FOREBAY_NAMESPACE_ENGINE", engine());
    }
    process = builder.start();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
    while (!serves()) {
      if (!process.isAlive() || System.nanoTime() - deadline > 0) {
        throw new IOException("bbd does not serve:\n" + Files.readString(log.toPath()));
      }
      Thread.sleep(5);
    }
  }

  /** Reports whether the namespace of a buffer is a log. */
  public boolean hasLog(String buffer) throws IOException {
    try (var files = Files.walk(state)) {
      return files.anyMatch(
          p -> p.getFileName().toString().startsWith("NS_forebay-" + buffer + "-"));
    }
  }

  /** Returns the engine of namespaces. Empty: the daemon's default. */
  public static String engine() {
    String engine = System.getenv("FOREBAY_TEST_ENGINE");
    return engine == null ? "" : engine;
  }

  private boolean serves() {
    try (SocketChannel c = SocketChannel.open(StandardProtocolFamily.UNIX)) {
      return c.connect(UnixDomainSocketAddress.of(state.resolve("bbd.sock")));
    } catch (IOException e) {
      return false;
    }
  }

  /** Ends it with SIGKILL and waits until it is gone. */
  public synchronized void kill() throws InterruptedException {
    process.destroyForcibly().waitFor();
  }

  /** Runs bbctl and returns its output. */
  public String bbctl(String... args) throws IOException, InterruptedException {
    List<String> line = new ArrayList<>();
    line.add(bin.resolve("bbctl").toString());
    line.add("--socket");
    line.add(state.resolve("bbd.sock").toString());
    line.addAll(List.of(args));
    Process p = new ProcessBuilder(line).redirectErrorStream(true).start();
    String out = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (p.waitFor() != 0) {
      throw new IOException(String.join(" ", line) + " failed:\n" + out);
    }
    return out;
  }

  private void remove() {
    try {
      process.destroyForcibly().waitFor();
      for (Path root : List.of(memory, dir)) {
        try (var files = Files.walk(root)) {
          files.sorted(Comparator.reverseOrder()).forEach(p -> p.toFile().delete());
        }
      }
    } catch (IOException | InterruptedException e) {
      System.err.println("removing " + dir + " and " + memory + ": " + e);
    }
  }
}
