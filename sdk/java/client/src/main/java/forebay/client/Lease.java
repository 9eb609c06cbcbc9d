package forebay.client;

import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.nio.channels.FileLock;

/** A segment that this client may fill. */
final class Lease extends Memory {
  private static final int ALIGN = 64;

  final Session session;
  final long id;
  final int length;
  final int tier; // of the bytes that are put into it
  private final RegionMap.Region region;
  private final FileLock lock; // null: there is none
  private boolean released;

  Lease(Session session, Forebay.Lease m, int tier, RegionMap.Region region) {
    super(
        region.bytes,
        (int) m.getOffset(),
        (int) (m.getDataStart() + ALIGN - 1) & -ALIGN,
        (int) m.getRecordFloor());
    this.session = session;
    this.id = m.getId();
    this.length = (int) m.getLength();
    this.tier = tier;
    this.region = region;
    this.lock = region.lock(m.getOffset(), m.getLength());
  }

  /**
   * Asks whether the session has lived until it was locked. If not, the daemon may have leased the
   * memory to others before, and nothing may be written to it.
   */
  void confirm() throws IOException {
    session.ask(
        Type.TYPE_CANCEL, // of no request
        Forebay.Cancel.getDefaultInstance(),
        Forebay.Empty.parser(),
        Forebay.Empty.class);
  }

  @Override
  boolean isLease() {
    return true;
  }

  /** Returns it to the daemon and releases the memory. It may be called twice. */
  void release() {
    if (released) {
      return;
    }
    released = true;
    if (lock != null) {
      try {
        lock.release();
      } catch (IOException e) {
        // Its file is closed, because the region is gone.
      }
    }
    if (session.alive()) {
      session.post(
          Type.TYPE_RETURN, Forebay.ReturnLease.newBuilder().setId(id).build(), null);
    }
    region.release();
  }
}
