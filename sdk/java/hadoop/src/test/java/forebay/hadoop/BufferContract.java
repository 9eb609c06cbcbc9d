package forebay.hadoop;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Tells Hadoop's contract suites of bb://, each run in a buffer of its own name. */
final class BufferContract extends AbstractFSContract {
  private final String buffer;
  private final Path root;

  BufferContract(Configuration conf, String buffer) {
    this(conf, buffer, "/test");
  }

  /** Root is the directory that the tests have for themselves. */
  BufferContract(Configuration conf, String buffer, String root) {
    super(conf);
    this.buffer = buffer;
    this.root = new Path(root);
    addConfResource("contract/bb.xml");
    TestBuffer.configure(getConf(), buffer);
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(TestBuffer.uri(buffer), getConf());
  }

  @Override
  public String getScheme() {
    return ForebayFileSystem.SCHEME;
  }

  @Override
  public Path getTestPath() {
    return root;
  }
}
