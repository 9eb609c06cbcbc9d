package forebay.client;

import forebay.v1.Forebay;
import java.util.List;

/**
 * The attributes of a buffer.
 *
 * @param capacity bytes; 0: no bound of its own
 * @param backing URL of the store behind it; "": none
 * @param durability when a close returns: "resident" or "flushed"; "": the daemon's choice
 * @param codec how files are compressed on the store; "": not
 * @param keep patterns of names that are not flushed; null in a create: the usual ones
 * @param existing treatment of files of the store that the buffer did not write: "keep" (the
 *     buffer's file of the same name stays dirty, in conflict), "overwrite" or "refuse" (no buffer
 *     is made on a store that holds something); "" in a create: keep
 * @param shared in a create: the store may be that of another buffer, or lie below or above it,
 * which
 *     is refused without; false in an answer
 * @param flush flush rules, as "step-*&#47;=every 5": which steps of a series go to the store. The
 * others
 *     stay in memory until they are superseded
 * @param mode permission bits; 0 in a create: the daemon's choice
 */
public record BufferSpec(
    String name,
    int uid,
    int gid,
    int mode,
    long capacity,
    String backing,
    String durability,
    String codec,
    List<String> keep,
    int replicas,
    String existing,
    boolean shared,
    List<String> flush) {

  /** Returns a buffer without flush rules. */
  public BufferSpec(
      String name,
      int uid,
      int gid,
      int mode,
      long capacity,
      String backing,
      String durability,
      String codec,
      List<String> keep,
      int replicas,
      String existing,
      boolean shared) {
    this(
        name,
        uid,
        gid,
        mode,
        capacity,
        backing,
        durability,
        codec,
        keep,
        replicas,
        existing,
        shared,
        List.of());
  }

  /** Returns the spec of a buffer with a backing store ("": none) and the daemon's defaults. */
  public static BufferSpec named(String name, String backing) {
    return new BufferSpec(name, 0, 0, 0, 0, backing, "", "", null, 0, "", false);
  }

  /** Returns this with another durability. */
  public BufferSpec withDurability(String d) {
    return new BufferSpec(
        name,
        uid,
        gid,
        mode,
        capacity,
        backing,
        d,
        codec,
        keep,
        replicas,
        existing,
        shared,
        flush);
  }

  /** Returns this with another treatment of files that the buffer did not write. */
  public BufferSpec withExisting(String e) {
    return new BufferSpec(
        name,
        uid,
        gid,
        mode,
        capacity,
        backing,
        durability,
        codec,
        keep,
        replicas,
        e,
        shared,
        flush);
  }

  /** Returns this with a store that other buffers may have too, or one below or above it. */
  public BufferSpec withShared(boolean s) {
    return new BufferSpec(
        name,
        uid,
        gid,
        mode,
        capacity,
        backing,
        durability,
        codec,
        keep,
        replicas,
        existing,
        s,
        flush);
  }

  /** Returns this with flush rules. */
  public BufferSpec withFlush(List<String> rules) {
    return new BufferSpec(
        name,
        uid,
        gid,
        mode,
        capacity,
        backing,
        durability,
        codec,
        keep,
        replicas,
        existing,
        shared,
        List.copyOf(rules));
  }

  Forebay.Buffer message() {
    Forebay.Buffer.Builder b =
        Forebay.Buffer.newBuilder()
            .setName(name)
            .setUid(uid)
            .setGid(gid)
            .setMode(mode)
            .setCapacity(capacity)
            .setBacking(backing)
            .setDurability(durability)
            .setCodec(codec)
            .setReplicas(replicas)
            // A daemon of an older release has another default.
            .setExisting(existing.isEmpty() ? "keep" : existing)
            .setShared(shared)
            .addAllFlush(flush)
            .setKeepDefault(keep == null);
    if (keep != null) {
      b.addAllKeep(keep);
    }
    return b.build();
  }

  static BufferSpec of(Forebay.Buffer m) {
    return new BufferSpec(
        m.getName(),
        m.getUid(),
        m.getGid(),
        m.getMode(),
        m.getCapacity(),
        m.getBacking(),
        m.getDurability(),
        m.getCodec(),
        List.copyOf(m.getKeepList()),
        m.getReplicas(),
        m.getExisting(),
        m.getShared(),
        List.copyOf(m.getFlushList()));
  }
}
