package forebay.hadoop;

import forebay.client.Entry;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** The status of a file or directory. The ETag of a closed file is its size and checksum. */
public final class ForebayFileStatus extends FileStatus implements EtagSource {
  private static final long serialVersionUID = 1;

  private final String etag;
  private final String[] nodes;
  private final long file;
  private final long generation;

  ForebayFileStatus(Entry e, Path path, long blockSize) {
    super(
        e.size(),
        e.directory(),
        e.directory() ? 0 : 1,
        e.directory() ? 0 : blockSize,
        TimeUnit.NANOSECONDS.toMillis(e.modified()),
        0,
        new FsPermission((short) e.mode()),
        Names.USERS.of(e.uid()),
        Names.GROUPS.of(e.gid()),
        null,
        path,
        false,
        false,
        false);
    boolean closed = !e.directory() && e.state() != Entry.State.OPEN;
    etag = closed ? Long.toHexString(e.size()) + "-" + Long.toHexString(e.checksum()) : null;
    boolean here = e.state() != Entry.State.EVICTED && e.state() != Entry.State.LOST;
    nodes = here ? e.holders().toArray(new String[0]) : new String[0];
    file = e.file();
    generation = e.generation();
  }

  @Override
  public String getEtag() {
    return etag;
  }

  /** Returns a handle of the file. One that is exact needs a closed file. */
  ForebayPathHandle handle(boolean exact) {
    if (isDirectory()) {
      throw new IllegalArgumentException(getPath() + " is a directory");
    }
    if (exact && etag == null) {
      throw new UnsupportedOperationException(
          getPath() + " is being written: there is no content yet to be held to");
    }
    return new ForebayPathHandle(getPath().toString(), file, generation, exact);
  }

  /** Returns the names of the nodes in whose memory the file lies. */
  String[] nodes() {
    return nodes.clone();
  }

  /** As of any status: the path alone counts. */
  @Override
  public boolean equals(Object o) {
    return super.equals(o);
  }

  @Override
  public int hashCode() {
    return super.hashCode();
  }

  /** The same, with the places of the file's blocks. */
  static final class Located extends LocatedFileStatus implements EtagSource {
    private static final long serialVersionUID = 1;

    private final ForebayFileStatus bare;

    Located(ForebayFileStatus s, BlockLocation[] blocks) {
      super(s, blocks);
      bare = s;
    }

    /** Returns the same without the places. */
    ForebayFileStatus bare() {
      return bare;
    }

    @Override
    public String getEtag() {
      return bare.getEtag();
    }

    /** As of any status: the path alone counts. */
    @Override
    public boolean equals(Object o) {
      return super.equals(o);
    }

    @Override
    public int hashCode() {
      return super.hashCode();
    }
  }
}
