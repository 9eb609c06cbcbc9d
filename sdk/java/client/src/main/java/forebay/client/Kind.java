package forebay.client;

/**
 * One of a closed set of kinds of errors, the same in every language. Their numbers are part of the
 * protocol.
 */
public enum Kind {
  INTERNAL("internal"),
  NOT_FOUND("not found"),
  EXISTS("exists"),
  NOT_DIRECTORY("not a directory"),
  IS_DIRECTORY("is a directory"),
  NOT_EMPTY("not empty"),
  PERMISSION("permission"),
  NO_SPACE("no space"),
  UNAVAILABLE("unavailable"),
  LOST("lost"),
  CHECKSUM("checksum"),
  BUSY("busy"),
  INVALID("invalid"),
  UNSUPPORTED("unsupported"),
  CANCELLED("cancelled");

  private static final Kind[] ALL = values();

  private final String text;

  Kind(String text) {
    this.text = text;
  }

  /** Returns the kind of a number of the protocol. That of a newer daemon is {@link #INTERNAL}. */
  static Kind of(int number) {
    return number >= 1 && number <= ALL.length ? ALL[number - 1] : INTERNAL;
  }

  /** Returns the kind's stable name. */
  @Override
  public String toString() {
    return text;
  }
}
