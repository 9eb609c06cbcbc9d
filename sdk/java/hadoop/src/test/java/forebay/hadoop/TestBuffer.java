package forebay.hadoop;

import forebay.client.BufferSpec;
import forebay.client.Client;
import forebay.client.ClientOptions;
import forebay.client.testing.Daemon;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;

/** Buffers of the daemon that the tests of this module share. */
final class TestBuffer {
  private static final Set<String> MADE = new HashSet<>(); // guards itself

  private TestBuffer() {}

  /** Returns a file system over a buffer with a backing store, which is made if it is not there. */
  static URI uri(String name) {
    try {
      synchronized (MADE) {
        if (MADE.add(name)) {
          Path store = Files.createDirectories(Daemon.get().dir().resolve("store-" + name));
          String address = Daemon.get().socket();
          try (Client c = Client.dial(ClientOptions.defaults().withAddress(address))) {
            c.createBuffer(BufferSpec.named(name, "file://" + store));
          }
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return URI.create("bb://" + name);
  }

  /** Returns a configuration whose default file system is a buffer. */
  static Configuration conf(String name) {
    return configure(new Configuration(), name);
  }

  static Configuration configure(Configuration conf, String name) {
    conf.set(ForebayFileSystem.ADDRESS, Daemon.get().socket());
    conf.set("fs.defaultFS", uri(name).toString());
    return conf;
  }

  static FileSystem fileSystem(String name) throws IOException {
    return FileSystem.get(uri(name), conf(name));
  }

  static FileContext context(String name) throws IOException {
    return FileContext.getFileContext(uri(name), conf(name));
  }
}
