package forebay.client;

import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import forebay.v1.Forebay;
import forebay.v1.Forebay.Type;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;

/**
 * Makes the output of many tasks part of one directory in one step. Readers get all of it or
 * nothing. Any process may hold one for the same transaction ({@link Buffer#txn}). It may be used
 * concurrently and needs no closing. Every operation may be repeated.
 */
public final class Txn {
  private static final String HIDDEN_DIR = ".txn";

  private final Client client;
  private final String buffer;
  private final String id;

  Txn(Client client, String buffer, String id) {
    this.client = client;
    this.buffer = buffer;
    this.id = id;
  }

  /** A transaction's place in its lifetime. */
  public enum State {
    /** Of a newer daemon. */
    UNKNOWN,
    OPEN,
    COMMITTING,
    /** Readers see the output. Daemons are giving it its final names. */
    COMMITTED,
    /** All of it has its final name. */
    FOLDED,
    ABORTED;

    static State of(String text) {
      for (State s : values()) {
        if (s.toString().equals(text)) {
          return s;
        }
      }
      return UNKNOWN;
    }

    /** Reports whether the output is part of the destination, for good. */
    public boolean isDecided() {
      return this == COMMITTED || this == FOLDED;
    }

    /** Returns the state's stable name. */
    @Override
    public String toString() {
      return name().toLowerCase(java.util.Locale.ROOT);
    }
  }

  /**
   * The transaction to begin.
   *
   * @param destination the directory that the output goes to: made, with those above it, if it is
   * not
   *     there. It cannot be the root
   * @param key at most 1 KiB: the same key of the same user is the same transaction. "": a new one
   * @param lease how long the transaction lives without being renewed; null: ten minutes
   */
  public record Spec(String destination, String key, Duration lease) {}

  /**
   * The state of a transaction.
   *
   * @param destination path in the buffer, when it began
   * @param key "" if the client gave none
   * @param path of its hidden directory
   * @param ended when it was committed or aborted; null if it is neither
   * @param lease how long it lives without being renewed
   * @param replace directories below the destination that the commit replaces; empty in lists
   * @param reason why it was aborted
   * @param tasks adopted; only of {@link Txn#info} and {@link Buffer#txns}, and 0 once it is folded
   */
  public record Info(
      String id,
      String buffer,
      String destination,
      String key,
      State state,
      String path,
      int uid,
      int gid,
      Instant created,
      Instant ended,
      Duration lease,
      List<String> replace,
      String reason,
      int tasks) {
    static Info of(Forebay.Txn m) {
      return new Info(
          m.getId(),
          m.getBuffer(),
          m.getDestination(),
          m.getKey(),
          State.of(m.getState()),
          m.getPath(),
          m.getUid(),
          m.getGid(),
          Instant.ofEpochSecond(0, m.getCreatedNs()),
          m.getEndedNs() == 0 ? null : Instant.ofEpochSecond(0, m.getEndedNs()),
          Duration.ofNanos(m.getLeaseNs()),
          List.copyOf(m.getReplaceList()),
          m.getReason(),
          m.getTasks());
    }
  }

  /** Returns the transaction's id in its buffer. */
  public String id() {
    return id;
  }

  /**
   * Returns the directory, as a path in the buffer, that an attempt of a task writes below. It has
   * to be made. Both names are any text without a slash.
   */
  public String path(String task, String attempt) {
    return String.join("/", HIDDEN_DIR, id, "attempt", task, attempt);
  }

  /**
   * Returns the directory, as a path in the buffer, of the output adopted so far. It is there until
   * the transaction is committed or aborted, and only for reading.
   */
  public String output() {
    return String.join("/", HIDDEN_DIR, id, "output");
  }

  private <T extends MessageLite> T ask(
      String op, String about, Type type, MessageLite m, Parser<T> parser, Class<T> reply)
      throws IOException {
    try {
      return client.ask(type, m, parser, reply);
    } catch (IOException e) {
      throw ForebayException.about(op, "bb://" + buffer + ": transaction " + id + about, e);
    }
  }

  private Info ask(String op, Type type) throws IOException {
    Forebay.TxnName m = Forebay.TxnName.newBuilder().setBuffer(buffer).setId(id).build();
    return Info.of(ask(op, "", type, m, Forebay.Txn.parser(), Forebay.Txn.class));
  }

  /**
   * Returns the present state of the transaction. Not found: a day has passed since it was over.
   */
  public Info info() throws IOException {
    return ask("transaction", Type.TYPE_TXN_GET);
  }

  /**
   * Makes the closed files of an attempt the output of its task, unless another attempt was faster.
   * Files of slower ones are removed. Cancelled if the transaction was aborted, busy if it is being
   * committed, or was, without this task, or is folded.
   *
   * @return the attempt whose files are the task's output
   */
  public String adopt(String task, String attempt) throws IOException {
    Forebay.TxnAdopt m =
        Forebay.TxnAdopt.newBuilder()
            .setBuffer(buffer)
            .setId(id)
            .setTask(task)
            .setAttempt(attempt)
            .build();
    return ask(
            "adopt",
            ", task " + task,
            Type.TYPE_TXN_ADOPT,
            m,
            Forebay.TxnAdopted.parser(),
            Forebay.TxnAdopted.class)
        .getWinner();
  }

  /**
   * Makes all adopted output part of the destination, in one step, regardless of earlier calls.
   * Cancelled if the transaction was aborted, not found if the destination was removed.
   *
   * @param replace directories, relative to the destination ("." for itself), whose content goes in
   *     the same step. Those of the first call count
   * @param wait whether to return only when all files have their final names, and begin to be
   * flushed
   */
  public Info commit(List<String> replace, boolean wait) throws IOException {
    Forebay.TxnCommit m =
        Forebay.TxnCommit.newBuilder()
            .setBuffer(buffer)
            .setId(id)
            .addAllReplace(replace)
            .setWait(wait)
            .build();
    return Info.of(
        ask(
            "commit transaction",
            "",
            Type.TYPE_TXN_COMMIT,
            m,
            Forebay.Txn.parser(),
            Forebay.Txn.class));
  }

  /** Removes all that was written under the transaction. Busy if it is committed. */
  public Info abort() throws IOException {
    return ask("abort transaction", Type.TYPE_TXN_ABORT);
  }

  /** Renews the lease of the transaction. Cancelled if it was aborted. */
  public Info renew() throws IOException {
    return ask("renew transaction", Type.TYPE_TXN_RENEW);
  }
}
