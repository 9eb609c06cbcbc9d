package forebay.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** The file system for users of FileContext. */
public final class ForebayFs extends DelegateToFileSystem {
  /** Is called by Hadoop. */
  public ForebayFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new ForebayFileSystem(), conf, ForebayFileSystem.SCHEME, false);
  }

  @Override
  public int getUriDefaultPort() {
    return -1; // the authority is a buffer
  }

  /** Renames in one step, overwriting or not. */
  @Override
  public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
    Options.Rename option = overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE;
    ((ForebayFileSystem) fsImpl).rename(from, to, option);
  }
}
