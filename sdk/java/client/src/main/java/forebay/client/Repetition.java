package forebay.client;

import com.google.protobuf.MessageLite;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.util.EnumSet;
import java.util.Set;

/**
 * Decides whether a request may be sent again when the connection broke before its answer came. It
 * may have been carried out, and others may have changed its subject since.
 */
final class Repetition {
  /** Requests about their session, and those between daemons, which no client sends. */
  static final Set<Type> NOT_ASKED =
      EnumSet.of(
          Type.TYPE_HELLO,
          Type.TYPE_PROVE,
          Type.TYPE_PULSE,
          Type.TYPE_CANCEL,
          Type.TYPE_UNPIN,
          Type.TYPE_CLOSE,
          Type.TYPE_LEASE,
          Type.TYPE_RETURN,
          Type.TYPE_HOLD,
          Type.TYPE_TAKE,
          Type.TYPE_DISCARD,
          Type.TYPE_REPLICATE,
          Type.TYPE_RECHECK,
          Type.TYPE_PLACE_RENAME,
          Type.TYPE_PLACE_REMOVE,
          Type.TYPE_NAMES,
          Type.TYPE_FOLLOW);

  /** Requests that change nothing. */
  static final Set<Type> READING =
      EnumSet.of(
          Type.TYPE_STATUS,
          Type.TYPE_SUBSCRIBE,
          Type.TYPE_BUFFER_GET,
          Type.TYPE_BUFFER_LIST,
          Type.TYPE_STAT,
          Type.TYPE_XATTRS,
          Type.TYPE_LIST,
          Type.TYPE_LOST,
          Type.TYPE_EXTENTS,
          Type.TYPE_VERIFY,
          Type.TYPE_RECEIPT,
          Type.TYPE_NODES,
          Type.TYPE_NODE_LOSS,
          Type.TYPE_JOBS,
          Type.TYPE_JOB,
          Type.TYPE_LIFETIMES,
          Type.TYPE_TXN_GET,
          Type.TYPE_TXN_LIST);

  /**
   * Requests that name their subject by an id or a key, so that a repetition has the same result.
   */
  static final Set<Type> KEYED =
      EnumSet.of(
          Type.TYPE_DRAIN,
          Type.TYPE_STAGE_IN,
          Type.TYPE_STAGE_OUT,
          Type.TYPE_NODE_DRAIN,
          Type.TYPE_TOKEN,
          Type.TYPE_BUFFER_REBUILD,
          Type.TYPE_JOB_CANCEL,
          Type.TYPE_LIFETIME_OPEN,
          Type.TYPE_LIFETIME_LEAVE,
          Type.TYPE_LIFETIME_END,
          Type.TYPE_TXN_BEGIN,
          Type.TYPE_TXN_ADOPT,
          Type.TYPE_TXN_COMMIT,
          Type.TYPE_TXN_ABORT,
          Type.TYPE_TXN_RENEW);

  /** Requests whose sender has rules of its own for going on in a new session. */
  static final Set<Type> RESUMED = EnumSet.of(Type.TYPE_OPEN, Type.TYPE_COMMIT);

  /** Requests whose second execution may undo changes by others after the first. */
  static final Set<Type> ONCE =
      EnumSet.of(
          Type.TYPE_BUFFER_CREATE,
          Type.TYPE_BUFFER_DESTROY,
          Type.TYPE_MKDIR,
          Type.TYPE_MKNOD,
          Type.TYPE_RENAME,
          Type.TYPE_EXCHANGE,
          Type.TYPE_REMOVE,
          Type.TYPE_SETATTR,
          Type.TYPE_SET_XATTR,
          Type.TYPE_NODE_UNDRAIN,
          Type.TYPE_NODE_FORGET,
          Type.TYPE_LIFETIME_DUE);

  private static final int NOT_DONE = 1;
  private static final int UNKNOWN = 2;

  private Repetition() {}

  /** Reports whether a request that was sent, and whose answer is lost, may be sent again as it is. */
  static boolean mayRepeat(Type type, MessageLite m) {
    if (m instanceof Forebay.TxnBegin begin && begin.getKey().isEmpty()) {
      return false;
    }
    return READING.contains(type) || KEYED.contains(type);
  }

  /**
   * Reports whether a request may have been carried out whose answer is an error. Where the answer
   * has no such mark, as those of older daemons, the kind decides. Most kinds are refusals.
   */
  static boolean mayBeDone(Type type, int outcome, Kind kind) {
    return switch (outcome) {
      case NOT_DONE -> false;
      case UNKNOWN -> true;
      default ->
          (ONCE.contains(type) || RESUMED.contains(type))
              && (kind == Kind.UNAVAILABLE || kind == Kind.CANCELLED || kind == Kind.INTERNAL);
    };
  }
}
