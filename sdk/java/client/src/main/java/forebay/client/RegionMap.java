package forebay.client;

import forebay.v1.Forebay;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The region files that a client has mapped, each once. It may be used concurrently. */
final class RegionMap {
  private final Map<Long, Region> maps = new HashMap<>(); // guards itself, and each region's users

  /**
   * One mapped region file. It stays mapped as long as it is in use, and after that while the file
   * is there and the client is not closed.
   */
  final class Region {
    /** All of the region. Its position and limit are never used. */
    final MappedByteBuffer bytes;

    private final long id;
    private final Path path;
    private final Object file;
    private final FileChannel channel;
    private int users = 1;
    private boolean stale;

    private Region(
        long id, Path path, Object file, FileChannel channel, MappedByteBuffer bytes) {
      this.id = id;
      this.path = path;
      this.file = file;
      this.channel = channel;
      this.bytes = bytes;
    }

    /**
     * Locks bytes for as long as this process may write them, even after the end of the session or the
     * daemon (internal/leaselock). Null where the kernel refuses. Then the memory is as safe as the
     * daemon's grace for writers makes it.
     */
    FileLock lock(long at, long length) {
      try {
        return channel.tryLock(at, length, true);
      } catch (IOException | OverlappingFileLockException e) {
        return null;
      }
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
    try {
      FileChannel f = RegionFile.at(path).channel;
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
      return new Region(m.getId(), path, RegionFile.identity(path), f, bytes);
    } catch (ForebayException e) {
      throw e;
    } catch (IOException e) {
      throw new ForebayException(
          Kind.UNAVAILABLE, "map", m.getPath(), "", String.valueOf(e.getMessage()), "", e);
    }
  }

  /**
   * Retires regions whose files are gone or are others now. Their pages would stay in memory for as
   * long as they are mapped.
   */
  void sweep() {
    synchronized (maps) {
      for (Region r : new ArrayList<>(maps.values())) {
        try {
          if (RegionFile.identity(r.path).equals(r.file)) {
            continue;
          }
        } catch (IOException e) {
          // It is gone.
        }
        r.retire();
      }
    }
  }

  /** Unmaps unused regions, and the rest when its last user is done. */
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
   * Unmaps at once. Nothing touches the buffer any more, since each window, lease and mapping
   * counts as a user until it is released. Otherwise 1 GiB would stay in memory until the collector
   * finds a small object.
   */
  private static void unmap(MappedByteBuffer bytes) {
    try {
      Unmapper.INVOKE_CLEANER.invoke(Unmapper.UNSAFE, bytes);
    } catch (ReflectiveOperationException | LinkageError e) {
      // Then the collector does it.
    }
  }
}
