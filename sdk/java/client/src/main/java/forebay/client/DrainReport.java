package forebay.client;

import forebay.v1.Forebay;
import java.util.List;

/**
 * The outcome of a drain.
 *
 * @param failed names that could not be flushed, with the reasons, at most as many as the daemon names
 * @param held names held back by a keep pattern
 * @param open names still open for writing
 * @param conflicts the paths, of those that failed, under which the store keeps a file that the
 *     buffer did not write ({@link Buffer#overwrite})
 * @param superseded steps that the drain has not flushed, and none will, since a newer one of their flush
 *     rule is complete; at most as many as the daemon names. They are no failures
 */
public record DrainReport(
    long files,
    long bytes,
    List<String> failed,
    List<String> held,
    List<String> open,
    List<String> conflicts,
    List<String> superseded) {

  /** Reports whether everything is on the store that is to be there. */
  public boolean isComplete() {
    return failed.isEmpty() && open.isEmpty();
  }

  static DrainReport of(Forebay.Progress m) {
    return new DrainReport(
        m.getFilesDone(),
        m.getBytesDone(),
        m.getFailedList().stream().map(f -> f.getPath() + ": " + f.getReason()).toList(),
        List.copyOf(m.getHeldList()),
        List.copyOf(m.getOpenList()),
        m.getFailedList().stream()
            .filter(f -> Kind.of(f.getKind()) == Kind.EXISTS)
            .map(Forebay.Failure::getPath)
            .toList(),
        List.copyOf(m.getSupersededList()));
  }
}
