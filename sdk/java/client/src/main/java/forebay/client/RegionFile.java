package forebay.client;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/**
 * The open file of a region. There is one for each region in a JVM, for all clients, and it stays
 * open until the region is gone. The kernel drops all locks that a process has on a file when any
 * descriptor of that file is closed, and these locks keep the memory of leases from other writers
 * (internal/leaselock). A class that is loaded twice has one each. Neither closes its own.
 */
final class RegionFile {
  private static final Map<Object, RegionFile> OPEN = new HashMap<>(); // by identity; guards itself

  final FileChannel channel;
  private final Path path;

  private RegionFile(Path path, FileChannel channel) {
    this.path = path;
    this.channel = channel;
  }

  /** Returns the file at a path, opened if it is not open yet. */
  static RegionFile at(Path path) throws IOException {
    synchronized (OPEN) {
      sweep();
      Object file = identity(path);
      RegionFile f = OPEN.get(file);
      if (f == null) {
        f =
            new RegionFile(
                path,
                FileChannel.open(
                    path,
                    StandardOpenOption.READ,
                    StandardOpenOption.WRITE,
                    LinkOption.NOFOLLOW_LINKS));
        OPEN.put(file, f);
      }
      return f;
    }
  }

  /** Returns an identifier that is unique among existing files. */
  static Object identity(Path path) throws IOException {
    return Files.readAttributes(path, "unix:dev,ino", LinkOption.NOFOLLOW_LINKS);
  }

  /** Closes files that are gone. The daemon deletes no region in which anything is locked. */
  private static void sweep() {
    OPEN.entrySet()
        .removeIf(
            e -> {
              RegionFile f = e.getValue();
              try {
                if (identity(f.path).equals(e.getKey())) {
                  return false;
                }
              } catch (IOException x) {
                // It is gone.
              }
              try {
                f.channel.close();
              } catch (IOException x) {
                // Nothing was written through it.
              }
              return true;
            });
  }
}
