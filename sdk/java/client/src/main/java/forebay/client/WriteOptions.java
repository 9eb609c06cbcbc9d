package forebay.client;

/**
 * The options of a file that is opened for writing.
 *
 * @param create make the file if it is missing
 * @param exclusive with create: fail if it is there. Its name is visible at once
 * @param truncate begin from nothing. The old content is visible until the first commit
 * @param append begin at the end; else at the beginning
 * @param mode permission bits of a new file
 */
public record WriteOptions(
    boolean create, boolean exclusive, boolean truncate, boolean append, int mode) {
  /** Makes a file, or replaces its content. */
  public static WriteOptions replace() {
    return new WriteOptions(true, false, true, false, 0644);
  }

  /** Makes a file that is not there. */
  public static WriteOptions createNew() {
    return new WriteOptions(true, true, false, false, 0644);
  }

  /** Writes into a file, which is made if it is missing. Others may write it at the same time. */
  public static WriteOptions update() {
    return new WriteOptions(true, false, false, false, 0644);
  }

  /** Goes on at the end of a file that is there. */
  public static WriteOptions appending() {
    return new WriteOptions(false, false, false, true, 0644);
  }

  /** Returns these options with other permission bits. */
  public WriteOptions withMode(int bits) {
    return new WriteOptions(create, exclusive, truncate, append, bits);
  }
}
