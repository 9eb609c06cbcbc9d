package forebay.hadoop;

import forebay.client.Attributes;
import forebay.client.Buffer;
import forebay.client.ClientOptions;
import forebay.client.Entry;
import forebay.client.ForebayException;
import forebay.client.Input;
import forebay.client.Kind;
import forebay.client.Output;
import forebay.client.WriteOptions;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.HadoopIllegalArgumentException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.LeaseRecoverable;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.PathCapabilitiesSupport;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.RemoteIterators;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Buffers as a file system, {@code bb://BUFFER/path}, with the rules of HDFS. */
public final class ForebayFileSystem extends FileSystem implements LeaseRecoverable {
  /** The scheme. */
  public static final String SCHEME = "bb";

  /** The address of the daemon. Without it, FOREBAY_SOCKET or the usual places. */
  public static final String ADDRESS = "fs.bb.address";

  /** File of the cluster key, for a daemon that is reached over TCP. */
  public static final String KEY_FILE = "fs.bb.key.file";

  /** File of a token of the buffer, for a daemon that is reached over TCP. */
  public static final String TOKEN_FILE = "fs.bb.token.file";

  /** The lifetime of a delegation token, in milliseconds, or with a unit such as 8h. */
  public static final String TOKEN_LIFETIME = "fs.bb.token.lifetime";

  /** Bytes of a reported block: the size of the parts that schedulers make of a file. */
  public static final String BLOCK_SIZE = "fs.bb.block.size";

  /** Whether also pieces of extents that are read out of sequence are checked. */
  public static final String VERIFY_ALL = "fs.bb.verify.all";

  static final Logger LOG = LoggerFactory.getLogger(ForebayFileSystem.class);

  private static final long DEFAULT_TOKEN_LIFETIME_MS = 24 * 3600 * 1000L;
  private static final long DEFAULT_BLOCK_SIZE = 128L << 20;

  static {
    Configuration.addDefaultResource("forebay-default.xml");
  }

  private URI uri;
  private Clients.Shared shared;
  private Buffer buffer;
  private Path workingDirectory;
  private long blockSize;
  private volatile Boolean syncs;

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    if (name.getAuthority() == null) {
      throw new IOException(name + " names no buffer: write bb://BUFFER/path");
    }
    uri = URI.create(SCHEME + "://" + name.getAuthority());
    blockSize = conf.getLongBytes(BLOCK_SIZE, DEFAULT_BLOCK_SIZE);
    workingDirectory = getHomeDirectory();
    String key = conf.getTrimmed(KEY_FILE, "");
    String token = conf.getTrimmed(TOKEN_FILE, "");
    ClientOptions o =
        ClientOptions.defaults()
            .withName("hadoop")
            .withAddress(conf.getTrimmed(ADDRESS))
            .withVerifyAll(conf.getBoolean(VERIFY_ALL, false));
    if (!key.isEmpty()) {
      o = o.withKeyFile(java.nio.file.Path.of(key));
    }
    if (!token.isEmpty()) {
      o = o.withTokenFile(java.nio.file.Path.of(token));
    }
    if (key.isEmpty() && token.isEmpty() && o.far()) {
      o = o.withToken(BufferTokens.given(uri));
    }
    try {
      shared = Clients.acquire(o);
    } catch (IOException e) {
      throw Errors.translate(new Path(name), e);
    }
    buffer = shared.client().buffer(name.getAuthority());
  }

  @Override
  public void close() throws IOException {
    try {
      super.close(); // deletes the paths marked for deletion on exit
    } finally {
      synchronized (this) {
        if (shared != null) {
          shared.release();
          shared = null;
        }
      }
    }
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** Returns {@code bb://BUFFER}, the service of its delegation tokens. */
  @Override
  public String getCanonicalServiceName() {
    return BufferTokens.service(uri);
  }

  /**
   * Returns a token with which processes elsewhere, without a key, reach a daemon over TCP, or null
   * if none can be made. It cannot be renewed. Its lifetime is {@link #TOKEN_LIFETIME}.
   */
  @Override
  public Token<TokenIdentifier> getDelegationToken(String renewer) throws IOException {
    long ms =
        getConf().getTimeDuration(TOKEN_LIFETIME, DEFAULT_TOKEN_LIFETIME_MS, TimeUnit.MILLISECONDS);
    return BufferTokens.make(shared.client(), buffer, Duration.ofMillis(ms));
  }

  @Override
  public Path getHomeDirectory() {
    String user;
    try {
      user = UserGroupInformation.getCurrentUser().getShortUserName();
    } catch (IOException e) {
      user = System.getProperty("user.name");
    }
    return makeQualified(new Path("/user/" + user));
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path dir) {
    workingDirectory = makeQualified(dir);
  }

  @Override
  @SuppressWarnings("deprecation")
  public long getDefaultBlockSize() {
    return blockSize;
  }

  @Override
  public FsServerDefaults getServerDefaults(Path p) {
    return new FsServerDefaults(
        blockSize, 512, 64 << 10, (short) 1, 4096, false, 0, null);
  }

  /** Returns the buffer, for committers. */
  Buffer buffer() {
    return buffer;
  }

  /** Reports whether there is a store behind the buffer. */
  boolean hasStore() throws IOException {
    return !shared.client().bufferInfo(buffer.name()).backing().isEmpty();
  }

  /** Returns the permission bits of files that are made with none of their own. */
  int fileMode() {
    return masked(FsPermission.getFileDefault());
  }

  /** Returns a path of the file system as one in the buffer. */
  String inBuffer(Path p) {
    checkPath(p);
    return makeQualified(p).toUri().getPath();
  }

  private ForebayFileStatus status(Entry e) {
    Path p = makeQualified(new Path("/" + e.path()));
    return new ForebayFileStatus(e, p, blockSize);
  }

  private static boolean is(IOException e, Kind... kinds) {
    for (Kind k : kinds) {
      if (ForebayException.kindOf(e) == k) {
        return true;
      }
    }
    return false;
  }

  /** Returns the entry of a path, or null if there is none. */
  private Entry find(Path p) throws IOException {
    try {
      return buffer.stat(inBuffer(p));
    } catch (IOException e) {
      if (is(e, Kind.NOT_FOUND, Kind.NOT_DIRECTORY)) {
        return null;
      }
      throw Errors.translate(p, e);
    }
  }

  private Entry need(Path p) throws IOException {
    Entry e = find(p);
    if (e == null) {
      throw new FileNotFoundException("File does not exist: " + makeQualified(p));
    }
    return e;
  }

  @Override
  public FileStatus getFileStatus(Path p) throws IOException {
    statistics.incrementReadOps(1);
    return status(need(p));
  }

  @Override
  public FSDataInputStream open(Path p, int bufferSize) throws IOException {
    return stream(p, input(p));
  }

  private FSDataInputStream stream(Path p, Input in) {
    return new FSDataInputStream(new ForebayInputStream(p, in, statistics));
  }

  private Input input(Path p) throws IOException {
    statistics.incrementReadOps(1);
    try {
      return buffer.open(inBuffer(p));
    } catch (IOException e) {
      if (is(e, Kind.IS_DIRECTORY, Kind.NOT_DIRECTORY)) {
        throw (IOException) new FileNotFoundException(e.getMessage()).initCause(e);
      }
      throw Errors.translate(p, e);
    }
  }

  /**
   * Returns a handle that opens the file at its path and no other one that is there later. With
   * {@code changed(false)}, it opens no other content either. One that follows a file to other
   * paths cannot be had, since entries are found by name alone.
   */
  @Override
  protected PathHandle createPathHandle(FileStatus s, Options.HandleOpt... options) {
    boolean moved =
        Options.HandleOpt.getOpt(Options.HandleOpt.Location.class, options)
            .map(Options.HandleOpt.Location::allowChange)
            .orElse(false);
    boolean changed =
        Options.HandleOpt.getOpt(Options.HandleOpt.Data.class, options)
            .map(Options.HandleOpt.Data::allowChange)
            .orElse(false);
    if (moved) {
      throw new UnsupportedOperationException("files are found by their paths, not their numbers");
    }
    ForebayFileStatus own = s instanceof ForebayFileStatus.Located l ? l.bare() : null;
    if (own == null && s instanceof ForebayFileStatus f) {
      own = f;
    }
    if (own == null) {
      throw new IllegalArgumentException("the status of " + s.getPath() + " is not from " + uri);
    }
    checkPath(own.getPath());
    return own.handle(!changed);
  }

  @Override
  public FSDataInputStream open(PathHandle handle, int bufferSize) throws IOException {
    ForebayPathHandle h = ForebayPathHandle.of(handle);
    Path p;
    Input in;
    try {
      p = new Path(h.uri());
      in = input(p);
    } catch (FileNotFoundException e) {
      throw new InvalidPathHandleException(h.uri() + " is not there any more", e);
    } catch (IllegalArgumentException e) {
      throw new InvalidPathHandleException("the handle is of no file of " + uri, e);
    }
    try {
      h.check(in.entry());
    } catch (IOException e) {
      in.close();
      throw e;
    }
    return stream(p, in);
  }

  @Override
  public FSDataOutputStream create(
      Path p,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long size,
      Progressable progress)
      throws IOException {
    return create(p, permission, overwrite, true);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path p,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long size,
      Progressable progress)
      throws IOException {
    return create(p, permission, flags.contains(CreateFlag.OVERWRITE), false);
  }

  private FSDataOutputStream create(
      Path p, FsPermission permission, boolean overwrite, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    String path = inBuffer(p);
    FsPermission given = permission == null ? FsPermission.getFileDefault() : permission;
    int mode = masked(given);
    WriteOptions o = overwrite ? WriteOptions.replace() : WriteOptions.createNew();
    try {
      return stream(p, make(path, o.withMode(mode), recursive), null);
    } catch (IOException e) {
      throw Errors.translate(p, e);
    }
  }

  private int masked(FsPermission p) {
    return p.applyUMask(FsPermission.getUMask(getConf())).toShort() & 0777;
  }

  /** Opens a file anew, which is visible then. */
  private Output make(String path, WriteOptions o, boolean recursive) throws IOException {
    Output out;
    try {
      out = buffer.open(path, o);
    } catch (IOException e) {
      if (recursive && is(e, Kind.NOT_FOUND)) {
        int dir = path.lastIndexOf('/');
        buffer.mkdirs(path.substring(0, dir), masked(FsPermission.getDirDefault()) | 0300);
        return make(path, o, false);
      }
      if (o.truncate() && is(e, Kind.BUSY)) {
        // It is being written. As with HDFS, that file is removed, and its writer gets an error.
        buffer.remove(path, false);
        return make(path, o, recursive);
      }
      throw e;
    }
    if (!o.exclusive()) {
      try {
        out.sync();
      } catch (IOException e) {
        out.abort();
        throw e;
      }
    }
    return out;
  }

  private FSDataOutputStream stream(Path p, Output out, Long start) throws IOException {
    if (syncs == null) {
      syncs = !shared.client().bufferInfo(buffer.name()).durability().equals("flushed");
    }
    ForebayOutputStream s = new ForebayOutputStream(p, out, syncs, statistics);
    return new FSDataOutputStream(s, null, start == null ? 0 : start);
  }

  @Override
  public FSDataOutputStream append(Path p, int bufferSize, Progressable progress)
      throws IOException {
    statistics.incrementWriteOps(1);
    Entry e = need(p);
    if (e.directory()) {
      throw new FileAlreadyExistsException(p + " is a directory");
    }
    if (e.state() == Entry.State.OPEN) {
      throw new IOException(p + " is being written: close it, or recover its lease, first");
    }
    try {
      Output out = buffer.open(inBuffer(p), WriteOptions.appending());
      return stream(p, out, out.position());
    } catch (IOException x) {
      throw Errors.translate(p, x);
    }
  }

  /**
   * Cuts a closed file. The rest is copied. It returns true, since the file can be written at once.
   *
   * @throws HadoopIllegalArgumentException if the file is shorter than that
   */
  @Override
  public boolean truncate(Path p, long length) throws IOException {
    statistics.incrementWriteOps(1);
    Entry e = need(p);
    if (e.directory()) {
      throw new FileNotFoundException("Path is not a file: " + makeQualified(p));
    }
    if (length < 0 || length > e.size()) {
      throw new HadoopIllegalArgumentException(
          "Cannot truncate " + p + ", which has " + e.size() + " bytes, to " + length);
    }
    if (e.state() == Entry.State.OPEN) {
      throw new IOException(p + " is being written: close it, or recover its lease, first");
    }
    if (length < e.size()) {
      try {
        Truncation.cut(buffer, e, length);
      } catch (IOException x) {
        throw Errors.translate(p, x);
      }
    }
    return true;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    statistics.incrementWriteOps(1);
    String source = inBuffer(from);
    String target = inBuffer(to);
    Entry s = find(from);
    if (s == null || source.equals("/")) {
      return false;
    }
    Entry d = find(to);
    if (d != null && d.directory() && !source.equals(target)) {
      target = (target.equals("/") ? "" : target) + "/" + s.name();
      d = find(new Path(target));
    }
    if (source.equals(target)) {
      return !s.directory();
    }
    if (d != null || target.startsWith(source + "/")) {
      return false;
    }
    try {
      buffer.rename(source, target, false);
      return true;
    } catch (IOException e) {
      if (is(e, Kind.NOT_FOUND, Kind.EXISTS, Kind.NOT_DIRECTORY)) {
        return false;
      }
      throw Errors.translate(from, e);
    }
  }

  /** Renames in one step, also over a file or an empty directory, if that is requested. */
  @Override
  @SuppressWarnings("deprecation")
  public void rename(Path from, Path to, Options.Rename... options) throws IOException {
    statistics.incrementWriteOps(1);
    boolean overwrite = List.of(options).contains(Options.Rename.OVERWRITE);
    String source = inBuffer(from);
    String target = inBuffer(to);
    Entry s = need(from);
    if (source.equals(target)) {
      throw new FileAlreadyExistsException("The source " + from + " and destination are the same");
    }
    if (source.equals("/") || target.equals("/")) {
      throw new IOException("the root cannot be renamed, nor replaced");
    }
    if (target.startsWith(source + "/")) {
      throw new IOException("Rename destination " + to + " is below the source " + from);
    }
    Entry d = find(to);
    if (d == null) {
      Entry parent = need(new Path(to.getParent().toUri().getPath()));
      if (!parent.directory()) {
        throw new ParentNotDirectoryException(to.getParent() + " is a file");
      }
    } else if (s.directory() != d.directory()) {
      throw new IOException(
          "Source " + from + " and destination " + to + " must both be directories, or files");
    } else if (!overwrite) {
      throw new FileAlreadyExistsException("rename destination " + to + " already exists");
    }
    try {
      buffer.rename(source, target, overwrite);
    } catch (IOException e) {
      if (is(e, Kind.NOT_EMPTY)) {
        throw new IOException("rename destination directory is not empty: " + to, e);
      }
      throw Errors.translate(from, e);
    }
  }

  @Override
  public boolean delete(Path p, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    String path = inBuffer(p);
    try {
      if (path.equals("/")) {
        if (!recursive && !buffer.list("", "", 1).entries().isEmpty()) {
          throw new PathIsNotEmptyDirectoryException(p.toString());
        }
        return false; // the root stays, with its entries
      }
      if (recursive) {
        need(p);
      }
      buffer.remove(path, recursive);
      return true;
    } catch (FileNotFoundException e) {
      return false;
    } catch (IOException e) {
      if (is(e, Kind.NOT_FOUND, Kind.NOT_DIRECTORY)) {
        return false;
      }
      throw Errors.translate(p, e);
    }
  }

  @Override
  public FileStatus[] listStatus(Path p) throws IOException {
    List<FileStatus> all = new ArrayList<>();
    RemoteIterator<FileStatus> i = listStatusIterator(p);
    while (i.hasNext()) {
      all.add(i.next());
    }
    return all.toArray(new FileStatus[0]);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path p) throws IOException {
    statistics.incrementReadOps(1);
    Entry e = need(p);
    return new Listing(p, e);
  }

  /** Lists page by page. */
  private final class Listing implements RemoteIterator<FileStatus> {
    private final Path dir;
    private Iterator<Entry> page;
    private boolean more;
    private String last = "";

    Listing(Path p, Entry e) throws IOException {
      dir = p;
      if (e.directory()) {
        fetch();
      } else {
        page = List.of(e).iterator();
      }
    }

    private void fetch() throws IOException {
      try {
        Buffer.Page got = buffer.list(inBuffer(dir), last, 0);
        page = got.entries().iterator();
        more = got.more();
      } catch (IOException e) {
        throw Errors.translate(dir, e);
      }
    }

    @Override
    public boolean hasNext() throws IOException {
      while (!page.hasNext() && more) {
        fetch();
      }
      return page.hasNext();
    }

    @Override
    public FileStatus next() throws IOException {
      if (!hasNext()) {
        throw new NoSuchElementException("the listing of " + dir + " is over");
      }
      Entry e = page.next();
      last = e.name();
      return status(e);
    }
  }

  /** Lists with ETags, which the usual way loses. */
  @Override
  protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path p, PathFilter filter)
      throws IOException {
    RemoteIterator<FileStatus> all =
        RemoteIterators.filteringRemoteIterator(
            listStatusIterator(p), s -> filter.accept(s.getPath()));
    return RemoteIterators.mappingRemoteIterator(
        all,
        s ->
            new ForebayFileStatus.Located(
                (ForebayFileStatus) s,
                s.isFile() ? getFileBlockLocations(s, 0, s.getLen()) : null));
  }

  @Override
  public boolean mkdirs(Path p, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    FsPermission given = permission == null ? FsPermission.getDirDefault() : permission;
    String path = inBuffer(p);
    if (path.equals("/")) {
      return true;
    }
    try {
      buffer.mkdirs(path, masked(given));
      return true;
    } catch (IOException e) {
      throw Errors.translate(p, e);
    }
  }

  @Override
  public void setPermission(Path p, FsPermission permission) throws IOException {
    set(p, new Attributes(permission.toShort() & 0777, null, null, null));
  }

  @Override
  public void setOwner(Path p, String user, String group) throws IOException {
    Integer uid = user == null || user.isEmpty() ? null : Names.USERS.idOf(user);
    Integer gid = group == null || group.isEmpty() ? null : Names.GROUPS.idOf(group);
    set(p, new Attributes(null, uid, gid, null));
  }

  /** Sets the time of modification. That of access is not kept. */
  @Override
  public void setTimes(Path p, long modified, long accessed) throws IOException {
    if (modified < 0) {
      need(p);
      return;
    }
    set(p, new Attributes(null, null, null, TimeUnit.MILLISECONDS.toNanos(modified)));
  }

  private void set(Path p, Attributes a) throws IOException {
    statistics.incrementWriteOps(1);
    try {
      buffer.setAttributes(inBuffer(p), a);
    } catch (IOException e) {
      if (is(e, Kind.NOT_DIRECTORY)) {
        throw (IOException) new FileNotFoundException(e.getMessage()).initCause(e);
      }
      throw Errors.translate(p, e);
    }
  }

  /** Names the nodes in whose memory the file lies. */
  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length)
      throws IOException {
    if (file == null) {
      return null;
    }
    if (start < 0 || length < 0) {
      throw new IllegalArgumentException("Invalid start or len parameter");
    }
    if (file.isDirectory() || file.getLen() <= start || length == 0) {
      return new BlockLocation[0];
    }
    ForebayFileStatus s =
        file instanceof ForebayFileStatus own ? own : status(need(file.getPath()));
    String[] hosts = s.nodes();
    String here = shared.client().server().node();
    for (int i = 0; i < hosts.length; i++) {
      hosts[i] = hosts[i].equals(here) && isLocal() ? localHost() : hosts[i];
    }
    List<BlockLocation> all = new ArrayList<>();
    long end = Math.min(file.getLen(), start + Math.min(length, file.getLen() - start));
    long size = s.getBlockSize();
    for (long at = start - start % size; at < end; at += size) {
      all.add(new BlockLocation(hosts, hosts, at, Math.min(size, file.getLen() - at)));
    }
    return all.toArray(new BlockLocation[0]);
  }

  private boolean isLocal() {
    return shared.client().server().address().startsWith("unix:");
  }

  /** A daemon may have another name than its host, which schedulers use for its executors. */
  private static String localHost() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException e) {
      return "localhost";
    }
  }

  @Override
  public FileChecksum getFileChecksum(Path p, long length) throws IOException {
    Entry e = need(p);
    if (e.directory()) {
      throw new FileNotFoundException(p + " is a directory");
    }
    if (e.state() == Entry.State.OPEN || length < e.size()) {
      return null;
    }
    return new ForebayChecksum(e.checksum());
  }

  /** Ends the writing of a file. Its content is the last hflush, and its writer gets an error. */
  @Override
  public boolean recoverLease(Path p) throws IOException {
    statistics.incrementWriteOps(1);
    if (!isFileClosed(p)) {
      try {
        buffer.recover(inBuffer(p));
      } catch (IOException e) {
        throw Errors.translate(p, e);
      }
    }
    return true;
  }

  @Override
  public boolean isFileClosed(Path p) throws IOException {
    Entry e = need(p);
    if (e.directory()) {
      throw new FileNotFoundException("Path is not a file: " + makeQualified(p));
    }
    return e.state() != Entry.State.OPEN;
  }

  @Override
  public boolean hasPathCapability(Path p, String capability) throws IOException {
    switch (PathCapabilitiesSupport.validatePathCapabilityArgs(makeQualified(p), capability)) {
      case CommonPathCapabilities.FS_APPEND:
      case CommonPathCapabilities.FS_PERMISSIONS:
      case CommonPathCapabilities.FS_CHECKSUMS:
      case CommonPathCapabilities.FS_PATHHANDLES:
      case CommonPathCapabilities.FS_TRUNCATE:
      case CommonPathCapabilities.LEASE_RECOVERABLE:
      case CommonPathCapabilities.ETAGS_AVAILABLE:
      case CommonPathCapabilities.ETAGS_PRESERVED_IN_RENAME:
        return true;
      default:
        return super.hasPathCapability(p, capability);
    }
  }
}
