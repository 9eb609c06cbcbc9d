package forebay.client;

import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.Checksum;

/**
 * A part [start, end) of a file as the daemon answered it: where its extents lie in mapped regions,
 * pinned, or the bytes themselves. It may be used concurrently until it is released.
 */
final class Window {
  final long start;
  final long end;
  final Session session;
  final Part[] parts; // ascending, without gaps

  // Guarded by the input.
  int users;
  boolean dropped; // released when the last user is done

  private final long pin; // 0: the bytes came with the answer
  private final List<RegionMap.Region> regions = new ArrayList<>();

  /** One run of a window: a hole, bytes that came with the answer, or the visible part of an extent. */
  static final class Part {
    final long start;
    final long end;
    final ByteBuffer bytes; // null: a hole
    final int at; // of start in bytes
    private final int wholeAt; // of the extent as it was written, which the checksum is of
    private final int wholeLength;
    private final long sum;
    private volatile boolean verified; // or there is nothing to verify

    Part(long start, long end, ByteBuffer bytes, int at) {
      this(start, end, bytes, at, 0, 0, 0);
      verified = true;
    }

    Part(long start, long end, ByteBuffer bytes, int at, int wholeAt, int wholeLength, long sum) {
      this.start = start;
      this.end = end;
      this.bytes = bytes;
      this.at = at;
      this.wholeAt = wholeAt;
      this.wholeLength = wholeLength;
      this.sum = sum;
    }

    /** Checks the whole extent, unless that was done. */
    void verify() throws IOException {
      if (!verified) {
        check(Crc64Nvme.of(bytes, wholeAt, wholeLength));
      }
    }

    private void check(long got) throws IOException {
      if (got != sum) {
        throw new ForebayException(
            Kind.CHECKSUM,
            "read",
            "",
            "bytes " + start + " to " + end + " do not have the checksum that they were written with");
      }
      verified = true;
    }

    /** Copies n bytes from an offset of the file on into an array, or else a buffer, at its index. */
    void copy(long offset, byte[] array, ByteBuffer target, int to, int n, boolean check)
        throws IOException {
      if (bytes == null) {
        zero(array, target, to, n);
        return;
      }
      boolean whole = !verified && n == wholeLength;
      if (check && !whole) {
        verify();
      }
      int from = at + (int) (offset - start);
      if (array != null) {
        bytes.get(from, array, to, n);
      } else {
        target.put(to, bytes, from, n);
      }
      if (whole) { // copied bytes are checked while they are in the cache
        Checksum c = Crc64Nvme.create();
        if (array != null) {
          c.update(array, to, n);
        } else {
          Crc64Nvme.update(c, target, to, n);
        }
        check(c.getValue());
      }
    }

    private static void zero(byte[] array, ByteBuffer target, int to, int n) {
      if (array != null) {
        Arrays.fill(array, to, to + n, (byte) 0);
        return;
      }
      for (int i = 0; i < n; i++) {
        target.put(to + i, (byte) 0);
      }
    }
  }

  /** Checks an answer to the question for the bytes from an offset on, and maps its extents. */
  Window(RegionMap regionMap, Session session, long offset, Forebay.Extents m, byte[] data)
      throws IOException {
    this.session = session;
    this.start = offset;
    this.pin = m.getPin();
    if (data != null && data.length > 0) {
      end = offset + data.length;
      parts = new Part[] {new Part(offset, end, ByteBuffer.wrap(data), 0)}; // verified by the daemon
      return;
    }
    boolean done = false;
    try {
      Map<Long, RegionMap.Region> byId = new HashMap<>();
      for (Forebay.Region r : m.getRegionsList()) {
        RegionMap.Region region = regionMap.acquire(r);
        regions.add(region);
        byId.put(r.getId(), region);
      }
      parts = new Part[m.getExtentsCount()];
      long at = offset;
      for (int i = 0; i < parts.length; i++) {
        Forebay.Extent e = m.getExtents(i);
        parts[i] = part(e, at, byId.get(e.getRegion()));
        at = parts[i].end;
      }
      end = at;
      done = true;
    } finally {
      if (!done) {
        release();
      }
    }
  }

  private static Part part(Forebay.Extent e, long offset, RegionMap.Region r) throws IOException {
    long length = e.getLength();
    if (e.getFileOffset() != offset || length <= 0 || length > Long.MAX_VALUE - offset) {
      throw wrong("an extent of " + length + " bytes at " + e.getFileOffset());
    }
    if (e.getRegion() == 0) {
      return new Part(offset, offset + length, null, 0);
    }
    long all = e.getCheckLength();
    long skip = e.getOffset() - e.getCheckOffset();
    // Not by sums, which may overflow. Lengths are compared with the rest behind offsets.
    if (r == null
        || e.getCheckOffset() < 0
        || all <= 0
        || all > r.bytes.capacity()
        || e.getCheckOffset() > r.bytes.capacity() - all
        || skip < 0
        || length > all
        || skip > all - length) {
      throw wrong("an extent that is not within its region");
    }
    return new Part(
        offset,
        offset + length,
        r.bytes,
        (int) e.getOffset(),
        (int) e.getCheckOffset(),
        (int) all,
        e.getChecksum());
  }

  private static ForebayException wrong(String what) {
    return new ForebayException(Kind.INTERNAL, "read", "", "the daemon named " + what);
  }

  /** Returns the part that holds an offset, which lies in the window. */
  Part at(long offset) {
    int lo = 0;
    int hi = parts.length;
    while (lo < hi) {
      int mid = (lo + hi) >>> 1;
      if (parts[mid].end <= offset) {
        lo = mid + 1;
      } else {
        hi = mid;
      }
    }
    return parts[lo];
  }

  /** Reports whether its pin is still ours. A pin of a broken session is void. */
  boolean holds() {
    return pin == 0 || session.alive();
  }

  /** Releases the window's pin after its last use. */
  void release() {
    regions.forEach(RegionMap.Region::release);
    regions.clear();
    if (pin != 0 && session.alive()) {
      session.post(
          Type.TYPE_UNPIN, Forebay.Unpin.newBuilder().addPins(pin).build(), null);
    }
  }
}
