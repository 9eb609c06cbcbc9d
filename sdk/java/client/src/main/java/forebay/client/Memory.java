package forebay.client;

import java.nio.ByteBuffer;

/**
 * The place of bytes that wait to be committed: a leased segment, or bytes of this process that
 * travel in the commit. One output at a time fills it, front to back, under its lock.
 *
 * <pre>
 *   0              pos                      floor - owed records         floor
 *   ├── filled ─────┤ free ───────────────────┤ owed to the next record ───┤ records ─▶
 * </pre>
 */
class Memory {
  /** The cost of one commit's record, besides its extents (RecordCost in internal/wire). */
  private static final int RECORD = 64;

  private static final int RECORD_ITEM = 32;

  final ByteBuffer bytes;
  final int base; // of the memory in bytes
  int pos;
  int floor;
  int extents; // that wait for a commit

  Memory(ByteBuffer bytes, int base, int pos, int floor) {
    this.bytes = bytes;
    this.base = base;
    this.pos = pos;
    this.floor = floor;
  }

  boolean isLease() {
    return false;
  }

  private int cost(int n) {
    return isLease() && n > 0 ? RECORD + n * RECORD_ITEM : 0;
  }

  /** Returns how many bytes can be added, in a new extent or in the last one. */
  int room(boolean begin) {
    return floor - cost(extents + (begin ? 1 : 0)) - pos;
  }

  /** Says that the record of everything that waits is written, or may be. */
  void recorded() {
    floor -= cost(extents);
  }

  /** Reports whether the waiting bytes could be committed once more. */
  boolean fitsAgain() {
    return room(false) >= 0;
  }
}
