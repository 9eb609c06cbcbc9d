package forebay.hadoop;

import forebay.client.ForebayException;
import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Translates errors to those that callers of HDFS catch. */
final class Errors {
  private Errors() {}

  static IOException translate(Path path, IOException e) {
    if (!(e instanceof ForebayException f)) {
      return e;
    }
    String text = f.getMessage();
    IOException as =
        switch (f.kind()) {
          case NOT_FOUND -> new FileNotFoundException(text);
          case EXISTS, IS_DIRECTORY -> new FileAlreadyExistsException(text);
          case NOT_DIRECTORY -> new ParentNotDirectoryException(text);
          case NOT_EMPTY -> new PathIsNotEmptyDirectoryException(path.toString());
          case PERMISSION -> new AccessControlException(text);
          case CHECKSUM -> new ChecksumException(text, -1);
          default -> null;
        };
    if (as == null) {
      return e;
    }
    as.initCause(e);
    return as;
  }
}
