package forebay.client;

import forebay.v1.Forebay;
import java.util.List;

/**
 * One file, directory or symbolic link of a buffer, as it was when it was requested.
 *
 * @param path in the buffer, clean: "" is the root
 * @param directory whether it is a directory
 * @param file the file's number, which stays when it is renamed
 * @param generation the newest committed content of the file
 * @param size bytes
 * @param checksum CRC-64/NVME of the whole content, unless the state is {@link State#OPEN}
 * @param state towards the backing store
 * @param reason why it is lost, or why its last flush failed
 * @param holders nodes that hold its bytes, the owner first
 * @param mode permission bits
 * @param modified nanoseconds since the Unix epoch
 * @param target where a symbolic link leads; "": it is none. Bytes that are no UTF-8 are replaced
 *     ({@link Buffer#readlink})
 */
public record Entry(
    String path,
    boolean directory,
    long file,
    long generation,
    long size,
    long checksum,
    State state,
    String reason,
    List<String> holders,
    int mode,
    int uid,
    int gid,
    long modified,
    String target) {

  /** The state of a file towards its backing store. */
  public enum State {
    UNKNOWN,
    OPEN,
    DIRTY,
    CLEAN,
    EVICTED,
    LOST,
    /** A flush rule does not flush the file any more, since a newer step is complete. */
    SUPERSEDED
  }

  /** Reports whether it is a symbolic link. */
  public boolean symlink() {
    return !target.isEmpty();
  }

  /** Returns the last name of the path. */
  public String name() {
    return path.substring(path.lastIndexOf('/') + 1);
  }

  static Entry of(String path, Forebay.Entry m) {
    State[] states = State.values();
    int state = m.getState();
    return new Entry(
        path,
        m.getType() == 2,
        m.getFile(),
        m.getGeneration(),
        m.getSize(),
        m.getChecksum(),
        state > 0 && state < states.length ? states[state] : State.UNKNOWN,
        m.getReason(),
        List.copyOf(m.getHoldersList()),
        m.getMode(),
        m.getUid(),
        m.getGid(),
        m.getMtimeNs(),
        m.getTarget().toStringUtf8());
  }
}
