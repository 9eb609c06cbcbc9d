package forebay.hadoop;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.token.DtFetcher;
import org.apache.hadoop.security.token.Token;

/** Lets {@code hadoop dtutil get bb://BUFFER FILE} write a buffer's token to a file. */
public final class ForebayDtFetcher implements DtFetcher {
  @Override
  public Text getServiceName() {
    return new Text(ForebayFileSystem.SCHEME);
  }

  /** Reports true, since without a token there is nothing to write. */
  @Override
  public boolean isTokenRequired() {
    return true;
  }

  @Override
  public Token<?> addDelegationTokens(
      Configuration conf, Credentials credentials, String renewer, String url) throws Exception {
    try (FileSystem fs = FileSystem.newInstance(URI.create(url), conf)) {
      Token<?>[] added = fs.addDelegationTokens(renewer, credentials);
      return added == null || added.length == 0 ? null : added[0];
    }
  }
}
