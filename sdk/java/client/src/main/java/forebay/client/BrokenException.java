package forebay.client;

import java.io.IOException;

/** The error of a session that ended before a reply came. See {@link Repetition}. */
final class BrokenException extends IOException {
  private static final long serialVersionUID = 1;

  /** Whether the request may have been carried out. */
  final boolean sent;

  BrokenException(Throwable reason, boolean sent) {
    super("the connection broke: " + reason.getMessage(), reason);
    this.sent = sent;
  }
}
