package forebay.hadoop;

import forebay.client.Buffer;
import forebay.client.Client;
import forebay.client.ForebayException;
import forebay.client.Kind;
import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;

/**
 * A buffer's tokens as Hadoop passes them on to the processes of a job. The identifier is the
 * token's content, the password its secret, the service {@code bb://BUFFER}.
 */
final class BufferTokens {
  private static final Text KIND = new Text("forebay");

  private BufferTokens() {}

  static String service(URI buffer) {
    return ForebayFileSystem.SCHEME + "://" + buffer.getAuthority();
  }

  /**
   * Returns a token of a buffer for others: the client's own, if it has one, else a new one. Null
   * if there are none: the daemon has no key to make them with, so that no process needs one, or
   * the user does not own the buffer.
   */
  static Token<TokenIdentifier> make(Client client, Buffer buffer, Duration lifetime)
      throws IOException {
    forebay.client.Token t = client.token();
    if (t == null) {
      try {
        t = buffer.token(lifetime);
      } catch (ForebayException e) {
        if (e.kind() == Kind.UNSUPPORTED || e.kind() == Kind.PERMISSION) {
          ForebayFileSystem.LOG.info("no delegation token: {}", e.getMessage());
          return null;
        }
        throw e;
      }
    }
    Text service = new Text(ForebayFileSystem.SCHEME + "://" + t.buffer());
    return new Token<>(t.claims(), t.secret(), KIND, service);
  }

  /** Returns the token of a buffer that the current user was given, or null if there is none. */
  static forebay.client.Token given(URI buffer) throws IOException {
    Text service = new Text(service(buffer));
    for (Token<?> t : UserGroupInformation.getCurrentUser().getTokens()) {
      if (KIND.equals(t.getKind()) && service.equals(t.getService())) {
        return new forebay.client.Token(t.getIdentifier(), t.getPassword());
      }
    }
    return null;
  }
}
