package forebay.apps;

import forebay.client.BufferSpec;
import forebay.client.Client;
import forebay.client.ClientOptions;
import forebay.client.testing.Daemon;
import forebay.hadoop.ForebayFileSystem;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;

/** Buffers of the daemon that the tests of this module share. */
public final class Buffers {
  private Buffers() {}

  /** Makes a buffer that flushes to a folder, and returns its URI. */
  public static String make(String name) throws IOException {
    Path store = Files.createDirectories(Daemon.get().dir().resolve("store-" + name));
    try (Client c =
        Client.dial(ClientOptions.defaults().withAddress(Daemon.get().socket()))) {
      c.createBuffer(BufferSpec.named(name, "file://" + store));
    }
    return "bb://" + name;
  }

  /**
   * Returns the configuration of a program whose default file system is a buffer of {@link #make},
   * and whose own scratch files are in a local folder.
   */
  public static Configuration conf(String uri, Path scratch) {
    Configuration conf = new Configuration();
    conf.set(ForebayFileSystem.ADDRESS, Daemon.get().socket());
    conf.set("fs.defaultFS", uri);
    conf.set("hadoop.tmp.dir", scratch.toString());
    return conf;
  }
}
