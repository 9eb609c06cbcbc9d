package forebay.client;

import java.io.IOException;

/** A failed operation: operation, path, node, reason and, where there is one, a remedy. */
public class ForebayException extends IOException {
  private static final long serialVersionUID = 1;

  private final Kind kind;
  private final String op;
  private final String path;
  private final String node;
  private final String reason;
  private final String remedy;
  private final boolean outcomeUnknown;

  ForebayException(Kind kind, String op, String path, String reason) {
    this(kind, op, path, "", reason, "", null);
  }

  ForebayException(Kind kind, String op, String path, String reason, String remedy) {
    this(kind, op, path, "", reason, remedy, null);
  }

  ForebayException(
      Kind kind, String op, String path, String node, String reason, String remedy, Throwable cause) {
    this(kind, op, path, node, reason, remedy, cause, false);
  }

  ForebayException(
      Kind kind,
      String op,
      String path,
      String node,
      String reason,
      String remedy,
      Throwable cause,
      boolean outcomeUnknown) {
    super(text(kind, op, path, node, reason, remedy), cause);
    this.kind = kind;
    this.op = op;
    this.path = path;
    this.node = node;
    this.reason = reason;
    this.remedy = remedy;
    this.outcomeUnknown = outcomeUnknown;
  }

  /** Returns the error of a change that may have been carried out. */
  static ForebayException unknown(String op, String path, String why, String remedy, Throwable cause) {
    return new ForebayException(
        Kind.UNAVAILABLE, op, path, "", "outcome unknown: " + why, remedy, cause, true);
  }

  /** Returns e, marked as of unknown outcome if its failed change may have been carried out. */
  ForebayException sayingOutcome() {
    if (!outcomeUnknown || reason.startsWith("outcome unknown")) {
      return this;
    }
    String why = "outcome unknown: it may have been carried out: " + reason;
    return new ForebayException(kind, op, path, node, why, "check whether it was done", this, true);
  }

  private static String text(
      Kind kind, String op, String path, String node, String reason, String remedy) {
    StringBuilder b = new StringBuilder();
    part(b, op);
    part(b, path);
    part(b, node.isEmpty() ? "" : "node " + node);
    part(b, reason.contains(kind.toString()) ? "" : kind.toString());
    part(b, reason);
    if (!remedy.isEmpty()) {
      b.append(" (").append(remedy).append(')');
    }
    return b.toString();
  }

  private static void part(StringBuilder b, String s) {
    if (!s.isEmpty()) {
      b.append(b.length() > 0 ? ": " : "").append(s);
    }
  }

  /** Returns e with an operation and an address of its own, unless it has them. Its kind stays. */
  static IOException about(String op, String path, IOException e) {
    if (e instanceof BrokenException) {
      return new ForebayException(Kind.UNAVAILABLE, op, path, "", e.getMessage(), "", e);
    }
    if (e instanceof ForebayException f && !f.path.startsWith("bb://")) {
      return new ForebayException(
          f.kind, op, path, f.node, f.reason, f.remedy, e, f.outcomeUnknown);
    }
    return e;
  }

  /** Returns an error that another thread received, with the caller's stack. */
  ForebayException here() {
    return new ForebayException(
        kind, op, path, node, reason, remedy, getCause(), outcomeUnknown);
  }

  /** Returns the kind of an error: that of a {@code ForebayException}, else {@link Kind#INTERNAL}. */
  public static Kind kindOf(Throwable e) {
    return e instanceof ForebayException f ? f.kind : Kind.INTERNAL;
  }

  /** Returns the kind. */
  public Kind kind() {
    return kind;
  }

  /** Returns the user's name of the operation: "open", "sync", … */
  public String op() {
    return op;
  }

  /** Returns the bb:// address, file or value that it was about. */
  public String path() {
    return path;
  }

  /** Returns the node where it failed, or "" if it was here. */
  public String node() {
    return node;
  }

  /** Returns why. */
  public String reason() {
    return reason;
  }

  /**
   * Returns, of a change that failed, whether it may have been carried out, or may be yet, since
   * the connection broke before the answer came. The client does not send such a change again. A
   * change that failed with another {@code ForebayException} was not carried out, and never will
   * be. One that was interrupted ({@link java.io.InterruptedIOException}) may have been.
   */
  public boolean outcomeUnknown() {
    return outcomeUnknown;
  }

  /** Returns the remedy, or "" without one. */
  public String remedy() {
    return remedy;
  }
}
