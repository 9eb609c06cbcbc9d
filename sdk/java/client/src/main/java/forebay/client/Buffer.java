package forebay.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;

/**
 * Addresses one buffer: its files and directories. Paths are relative to its root. A leading slash
 * is ignored, ".." is refused. It may be used concurrently and needs no closing.
 */
public final class Buffer {
  private static final int SYMLINK = 3; // of the types of entries
  private static final int XATTR_SET = 0; // of SetXattr
  private static final int XATTR_REMOVE = 3;

  private final Client client;
  private final String name;

  Buffer(Client client, String name) {
    this.client = client;
    this.name = name;
  }

  /** One page of a directory, by name. With more, further names follow. */
  public record Page(List<Entry> entries, boolean more) {}

  /** Returns the buffer's name. */
  public String name() {
    return name;
  }

  private String address(String path) {
    return "bb://" + name + "/" + path;
  }

  /** Returns a path without leading, trailing and doubled slashes: "" is the root. */
  static String clean(String path) {
    StringBuilder b = new StringBuilder(path.length());
    for (String part : path.split("/")) {
      if (!part.isEmpty() && !part.equals(".")) {
        b.append(b.length() > 0 ? "/" : "").append(part);
      }
    }
    return b.toString();
  }

  private <T extends MessageLite> T ask(
      String op, String path, Type type, MessageLite m, Parser<T> parser, Class<T> reply)
      throws IOException {
    try {
      return client.ask(type, m, parser, reply);
    } catch (IOException e) {
      throw ForebayException.about(op, address(path), e);
    }
  }

  private void change(String op, String path, Type type, MessageLite m) throws IOException {
    ask(op, path, type, m, Forebay.Empty.parser(), Forebay.Empty.class);
  }

  /** Describes a file or directory. */
  public Entry stat(String path) throws IOException {
    String p = clean(path);
    Forebay.PathRequest m = Forebay.PathRequest.newBuilder().setBuffer(name).setPath(p).build();
    return Entry.of(
        p, ask("stat", p, Type.TYPE_STAT, m, Forebay.Entry.parser(), Forebay.Entry.class));
  }

  /** Lists names of a directory greater than after, at most limit (0: the daemon chooses). */
  public Page list(String dir, String after, int limit) throws IOException {
    String p = clean(dir);
    Forebay.ListRequest m =
        Forebay.ListRequest.newBuilder()
            .setBuffer(name)
            .setPath(p)
            .setAfter(after)
            .setLimit(limit)
            .build();
    Forebay.ListReply got =
        ask("list", p, Type.TYPE_LIST, m, Forebay.ListReply.parser(), Forebay.ListReply.class);
    List<Entry> entries = new ArrayList<>(got.getEntriesCount());
    for (Forebay.Entry e : got.getEntriesList()) {
      entries.add(Entry.of(p.isEmpty() ? e.getName() : p + "/" + e.getName(), e));
    }
    return new Page(entries, got.getMore());
  }

  /** Lists a directory, by name. */
  public List<Entry> list(String dir) throws IOException {
    List<Entry> all = new ArrayList<>();
    Page page;
    do {
      page = list(dir, all.isEmpty() ? "" : all.get(all.size() - 1).name(), 0);
      all.addAll(page.entries());
    } while (page.more());
    return all;
  }

  /** Makes a directory, whose parent is there. */
  public void mkdir(String path, int mode) throws IOException {
    mkdir(path, mode, false);
  }

  /** Makes a directory and its parents, as far as they are missing. */
  public void mkdirs(String path, int mode) throws IOException {
    mkdir(path, mode, true);
  }

  private void mkdir(String path, int mode, boolean parents) throws IOException {
    String p = clean(path);
    Forebay.Mkdir m =
        Forebay.Mkdir.newBuilder()
            .setBuffer(name)
            .setPath(p)
            .setMode(mode)
            .setParents(parents)
            .build();
    ask("mkdir", p, Type.TYPE_MKDIR, m, Forebay.Entry.parser(), Forebay.Entry.class);
  }

  /**
   * Makes a symbolic link. No method follows it. Programs on a mount do.
   *
   * @param target where it leads, which need not be there: at most 4095 bytes of UTF-8
   * @param path of the link, whose parent is there
   */
  public void symlink(String target, String path) throws IOException {
    String p = clean(path);
    Forebay.Mknod m =
        Forebay.Mknod.newBuilder()
            .setBuffer(name)
            .setPath(p)
            .setType(SYMLINK)
            .setTarget(ByteString.copyFromUtf8(target))
            .setMode(0777)
            .build();
    ask("symlink", p, Type.TYPE_MKNOD, m, Forebay.Entry.parser(), Forebay.Entry.class);
  }

  /** Returns where a symbolic link leads. Invalid if it is none, or if its target is no UTF-8. */
  public String readlink(String path) throws IOException {
    String p = clean(path);
    Forebay.PathRequest m = Forebay.PathRequest.newBuilder().setBuffer(name).setPath(p).build();
    Forebay.Entry e =
        ask("readlink", p, Type.TYPE_STAT, m, Forebay.Entry.parser(), Forebay.Entry.class);
    if (e.getType() != SYMLINK) {
      throw new ForebayException(Kind.INVALID, "readlink", address(p), "it is no symbolic link");
    }
    if (!e.getTarget().isValidUtf8()) {
      throw new ForebayException(Kind.INVALID, "readlink", address(p), "its target is no UTF-8");
    }
    return e.getTarget().toStringUtf8();
  }

  /** Renames a file or directory in one step, at any size. The entry there is replaced. */
  public void rename(String from, String to) throws IOException {
    rename(from, to, true);
  }

  /** Renames a file or directory. Without replace it fails with exists if the name is taken. */
  public void rename(String from, String to, boolean replace) throws IOException {
    Forebay.Rename m =
        Forebay.Rename.newBuilder()
            .setBuffer(name)
            .setFrom(clean(from))
            .setTo(clean(to))
            .setNoReplace(!replace)
            .build();
    change("rename", clean(from), Type.TYPE_RENAME, m);
  }

  /**
   * Swaps the names of two files or directories, in one step. It fails with invalid if one lies
   * below the other, and with busy if one is replaced at the same time.
   */
  public void exchange(String first, String second) throws IOException {
    Forebay.ExchangeNames m =
        Forebay.ExchangeNames.newBuilder()
            .setBuffer(name)
            .setFrom(clean(first))
            .setTo(clean(second))
            .setFromId(number(first))
            .setToId(number(second))
            .build();
    change("exchange", clean(first), Type.TYPE_EXCHANGE, m);
  }

  /** Returns the number of the file or directory that has a name. */
  private long number(String path) throws IOException {
    String p = clean(path);
    Forebay.PathRequest m = Forebay.PathRequest.newBuilder().setBuffer(name).setPath(p).build();
    Forebay.Entry e = ask("stat", p, Type.TYPE_STAT, m, Forebay.Entry.parser(), Forebay.Entry.class);
    return e.getDir() != 0 ? e.getDir() : e.getFile();
  }

  /** Removes a file or an empty directory, or with recursive one with all that is in it. */
  public void remove(String path, boolean recursive) throws IOException {
    String p = clean(path);
    Forebay.Remove m =
        Forebay.Remove.newBuilder().setBuffer(name).setPath(p).setRecursive(recursive).build();
    change("remove", p, Type.TYPE_REMOVE, m);
  }

  /** Changes attributes. */
  public Entry setAttributes(String path, Attributes a) throws IOException {
    String p = clean(path);
    Forebay.SetAttr.Builder m = Forebay.SetAttr.newBuilder().setBuffer(name).setPath(p);
    if (a.mode() != null) {
      m.setMode(a.mode());
    }
    if (a.uid() != null) {
      m.setUid(a.uid());
    }
    if (a.gid() != null) {
      m.setGid(a.gid());
    }
    if (a.modified() != null) {
      m.setMtimeNs(a.modified());
    }
    return Entry.of(
        p,
        ask(
            "setattr",
            p,
            Type.TYPE_SETATTR,
            m.build(),
            Forebay.Entry.parser(),
            Forebay.Entry.class));
  }

  /**
   * Sets an extended attribute of a file or directory that the user may write. It belongs to the
   * file, so renames and new content keep it. It comes to the store with the next flush of the
   * file's content. No space: all attributes of a file would take more than 8 KiB.
   *
   * @param attribute a name that begins with "user.": at most 255 bytes of UTF-8
   */
  public void setXattr(String path, String attribute, byte[] value) throws IOException {
    setXattr("setxattr", path, attribute, value, XATTR_SET);
  }

  /** Removes an extended attribute. Not found if there is none of that name. */
  public void removeXattr(String path, String attribute) throws IOException {
    setXattr("removexattr", path, attribute, new byte[0], XATTR_REMOVE);
  }

  private void setXattr(String op, String path, String attribute, byte[] value, int how)
      throws IOException {
    String p = clean(path);
    Forebay.SetXattr m =
        Forebay.SetXattr.newBuilder()
            .setBuffer(name)
            .setPath(p)
            .setName(ByteString.copyFromUtf8(attribute))
            .setValue(ByteString.copyFrom(value))
            .setOp(how)
            .build();
    change(op, p, Type.TYPE_SET_XATTR, m);
  }

  /**
   * Returns the extended attributes of a file or directory that the user may read, by name. Names
   * that are no UTF-8 are left out.
   */
  public Map<String, byte[]> xattrs(String path) throws IOException {
    String p = clean(path);
    Forebay.PathRequest m = Forebay.PathRequest.newBuilder().setBuffer(name).setPath(p).build();
    Forebay.Xattrs all =
        ask("getxattr", p, Type.TYPE_XATTRS, m, Forebay.Xattrs.parser(), Forebay.Xattrs.class);
    if (all.getUnreadable()) {
      throw new ForebayException(
          Kind.PERMISSION, "getxattr", address(p), "the user may not read it");
    }
    Map<String, byte[]> found = new TreeMap<>();
    for (Forebay.Xattr x : all.getXattrsList()) {
      if (x.getName().isValidUtf8()) {
        found.put(x.getName().toStringUtf8(), x.getValue().toByteArray());
      }
    }
    return found;
  }

  /** Opens a file for reading. Until it is closed, it reads the content of this moment. */
  public Input open(String path) throws IOException {
    return new Input(client, name, clean(path));
  }

  /** Makes a file, or replaces its content. */
  public Output create(String path) throws IOException {
    return open(path, WriteOptions.replace());
  }

  /** Opens a file for writing. */
  public Output open(String path, WriteOptions o) throws IOException {
    String p = clean(path);
    if (p.isEmpty()) {
      throw new ForebayException(
          Kind.IS_DIRECTORY, "open", address(p), "the root is a directory");
    }
    try {
      return new Output(client, name, p, o, false);
    } catch (IOException e) {
      throw ForebayException.about("open", address(p), e);
    }
  }

  /**
   * Ends the writing of a file by all its writers. Its content is their commits, and their later
   * operations fail, also those of writers that cannot be reached.
   */
  public void recover(String path) throws IOException {
    String p = clean(path);
    WriteOptions o = new WriteOptions(false, false, false, false, 0);
    try (Output out = new Output(client, name, p, o, true)) {
      // A commit of nothing begins a generation of another number, which the writers of the one
      // before cannot go on with.
      out.sync();
    } catch (IOException e) {
      throw ForebayException.about("recover", address(p), e);
    }
  }

  /**
   * Begins a transaction, or returns the one of the same key, in any state. Unsupported if a
   * daemon of the cluster is too old, exists if the key is of another destination.
   */
  public Txn begin(Txn.Spec spec) throws IOException {
    String p = clean(spec.destination());
    // With a key of its own, a request that is sent again does not begin a second one.
    String key = spec.key().isEmpty() ? UUID.randomUUID().toString() : spec.key();
    Forebay.TxnBegin.Builder m =
        Forebay.TxnBegin.newBuilder().setBuffer(name).setDestination(p).setKey(key);
    if (spec.lease() != null) {
      m.setLeaseNs(spec.lease().toNanos());
    }
    Type type = Type.TYPE_TXN_BEGIN;
    return txn(
        ask("begin transaction", p, type, m.build(), Forebay.Txn.parser(), Forebay.Txn.class)
            .getId());
  }

  /** Returns the transaction of an id, which another process has begun. It does no I/O. */
  public Txn txn(String id) {
    return new Txn(client, name, id);
  }

  /** Lists the user's transactions, the newest first, and for the system all. */
  public List<Txn.Info> txns() throws IOException {
    Forebay.BufferName m = Forebay.BufferName.newBuilder().setName(name).build();
    Type type = Type.TYPE_TXN_LIST;
    return ask("transactions", "", type, m, Forebay.Txns.parser(), Forebay.Txns.class)
        .getTxnsList()
        .stream()
        .map(Txn.Info::of)
        .toList();
  }

  /**
   * Makes a token of the buffer, as its owner or the system, at a daemon that has the cluster key.
   *
   * @param lifetime at most 30 days
   */
  public Token token(Duration lifetime) throws IOException {
    Forebay.TokenRequest m =
        Forebay.TokenRequest.newBuilder().setBuffer(name).setLifetimeNs(lifetime.toNanos()).build();
    Forebay.Token made =
        ask("token", "", Type.TYPE_TOKEN, m, Forebay.Token.parser(), Forebay.Token.class);
    return Token.of(made.getToken().toByteArray());
  }

  /** Flushes all that is dirty and waits until it is on the store. */
  public DrainReport drain() throws IOException {
    return client.drain(name, "");
  }

  /**
   * Flushes the dirty bytes of a file, or below a directory, and waits until they are on the store,
   * regardless of the rest of the buffer.
   */
  public DrainReport drain(String path) throws IOException {
    return client.drain(name, path);
  }

  /**
   * Drains a file, or all below a directory, and also replaces files of the store there that the
   * buffer did not write: those that {@link DrainReport#conflicts} names. Contents that are written
   * later are compared again. Only the buffer's owner may do it.
   */
  public DrainReport overwrite(String path) throws IOException {
    return client.drain(
        Forebay.Drain.newBuilder().setBuffer(name).setBelow(path).setOverwrite(true));
  }
}
