package forebay.client;

import java.io.IOException;

/** Says that a session ended before a reply came: see {@link Repetition}. */
final class BrokenException extends IOException {
  private static final long serialVersionUID = 1;

  /** Whether the request may have been carried out. */
  final boolean sent;

  BrokenException(Throwable reason, boolean sent) {
    super("the connection broke: " + reason.getMessage(), reason);
    this.sent = sent;
  }
}
