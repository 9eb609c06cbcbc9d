package forebay.client;

import forebay.v1.Forebay;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The region files that a client has mapped, each once. It may be used concurrently. */
final class Atlas {
  private final Map<Long, Region> maps = new HashMap<>(); // guards itself, and each region's users

  /**
   * One mapped region file. It stays mapped as long as somebody uses it, and after that while the
   * file is there and the client is not closed.
   */
  final class Region {
    /** All of the region. Its position and limit are never used. */
    final MappedByteBuffer bytes;

    private final long id;
    private final Path path;
    private final Object file;
    private int users = 1;
    private boolean stale;

    private Region(long id, Path path, Object file, MappedByteBuffer bytes) {
      this.id = id;
      this.path = path;
      this.file = file;
      this.bytes = bytes;
    }

    /** Says that a user is done. */
    void release() {
      synchronized (maps) {
        if (--users == 0 && stale) {
          unmap(bytes);
        }
      }
    }

    private void retire() {
      if (!stale) {
        stale = true;
        maps.remove(id, this);
        if (users == 0) {
          unmap(bytes);
        }
      }
    }
  }

  /** Maps a region, unless it is mapped already. Release it after use. */
  Region acquire(Forebay.Region m) throws IOException {
    synchronized (maps) {
      Region r = maps.get(m.getId());
      if (r != null && r.path.toString().equals(m.getPath()) && r.bytes.capacity() >= m.getLength()) {
        r.users++;
        return r;
      }
      sweep();
      Region made = map(m);
      Region other = maps.put(m.getId(), made);
      if (other != null) {
        other.retire();
      }
      return made;
    }
  }

  private Region map(Forebay.Region m) throws IOException {
    if (m.getPath().isEmpty() || m.getLength() <= 0 || m.getLength() > Integer.MAX_VALUE) {
      throw new ForebayException(
          Kind.UNAVAILABLE, "map", "", "the daemon names no file for a region");
    }
    Path path = Path.of(m.getPath());
    try (FileChannel f =
        FileChannel.open(
            path,
            StandardOpenOption.READ,
            StandardOpenOption.WRITE,
            LinkOption.NOFOLLOW_LINKS)) {
      // Touching a page behind the file's end would be a fault.
      if (f.size() < m.getLength()) {
        throw new ForebayException(
            Kind.UNAVAILABLE,
            "map",
            m.getPath(),
            "the region has " + m.getLength() + " bytes, its file only " + f.size());
      }
      MappedByteBuffer bytes = f.map(FileChannel.MapMode.READ_WRITE, 0, m.getLength());
      bytes.order(ByteOrder.LITTLE_ENDIAN);
      return new Region(m.getId(), path, identity(path), bytes);
    } catch (ForebayException e) {
      throw e;
    } catch (IOException e) {
      throw new ForebayException(
          Kind.UNAVAILABLE, "map", m.getPath(), "", String.valueOf(e.getMessage()), "", e);
    }
  }

  private static Object identity(Path path) throws IOException {
    return Files.readAttributes(path, "unix:dev,ino", LinkOption.NOFOLLOW_LINKS);
  }

  /**
   * Retires regions whose files are gone or are others now: their pages would stay in memory for as
   * long as they are mapped.
   */
  void sweep() {
    synchronized (maps) {
      for (Region r : new ArrayList<>(maps.values())) {
        try {
          if (identity(r.path).equals(r.file)) {
            continue;
          }
        } catch (IOException e) {
          // It is gone.
        }
        r.retire();
      }
    }
  }

  /** Unmaps what nobody uses, and the rest when its last user is done. */
  void close() {
    synchronized (maps) {
      List.copyOf(maps.values()).forEach(Region::retire);
    }
  }

  private static final class Unmapper {
    private static final Method INVOKE_CLEANER;
    private static final Object UNSAFE;

    static {
      try {
        Class<?> c = Class.forName("sun.misc.Unsafe");
        Field f = c.getDeclaredField("theUnsafe");
        f.setAccessible(true);
        UNSAFE = f.get(null);
        INVOKE_CLEANER = c.getMethod("invokeCleaner", ByteBuffer.class);
      } catch (ReflectiveOperationException e) {
        throw new ExceptionInInitializerError(e);
      }
    }
  }

  /**
   * Unmaps at once. Nothing touches the buffer any more: each window, lease and mapping counts as a
   * user until it is released. Otherwise 1 GiB would stay in memory until the collector finds a
   * small object.
   */
  private static void unmap(MappedByteBuffer bytes) {
    try {
      Unmapper.INVOKE_CLEANER.invoke(Unmapper.UNSAFE, bytes);
    } catch (ReflectiveOperationException | LinkageError e) {
      // Then the collector does it.
    }
  }
}
