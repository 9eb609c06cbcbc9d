package forebay.client;

import java.nio.file.Path;
import java.time.Duration;

/**
 * The address of a daemon, and the secrets for it. Null has a meaning of its own in each field.
 *
 * @param address unix:///path or tcp://host:port, several separated by commas, tried in order; null:
 *     FOREBAY_SOCKET, else the sockets where a daemon of this machine usually is
 * @param keyFile file of the cluster's keys, for TCP; null: FOREBAY_KEY_FILE
 * @param tokenFile file of a token, for TCP; null: FOREBAY_TOKEN_FILE
 * @param token a token, for TCP, before all files; null: there is none but theirs
 * @param tls files for TLS over TCP; null: FOREBAY_TLS_CA, FOREBAY_TLS_CERT, FOREBAY_TLS_KEY
 * @param name the program's name, for the daemon's status and logs; null: "java"
 * @param retryFor how long an operation tries to reach a daemon that does not answer; null: 30 s
 * @param verifyAll whether reads of parts of an extent, in mapped memory and out of sequence, are
 *     checked too. The whole extent is read for each then, once
 */
public record ClientOptions(
    String address,
    Path keyFile,
    Path tokenFile,
    Token token,
    TlsFiles tls,
    String name,
    Duration retryFor,
    boolean verifyAll) {

  /**
   * PEM files of TLS.
   *
   * @param ca certificates of the authorities that sign the daemons'
   * @param cert a client's certificate; null: it proves by key or token
   * @param key its key, which its owner alone may be able to read
   */
  public record TlsFiles(Path ca, Path cert, Path key) {}

  /** Reports whether a daemon may be reached over TCP, where a proof is required. */
  public boolean far() {
    return Dialer.addresses(address).stream().anyMatch(a -> a.startsWith("tcp://"));
  }

  /** Returns the options of a client of this machine's daemon. */
  public static ClientOptions defaults() {
    return new ClientOptions(null, null, null, null, null, null, null, false);
  }

  /** Returns these options with another address. */
  public ClientOptions withAddress(String a) {
    return new ClientOptions(a, keyFile, tokenFile, token, tls, name, retryFor, verifyAll);
  }

  /** Returns these options with a file of keys. */
  public ClientOptions withKeyFile(Path file) {
    return new ClientOptions(address, file, tokenFile, token, tls, name, retryFor, verifyAll);
  }

  /** Returns these options with a file of a token. */
  public ClientOptions withTokenFile(Path file) {
    return new ClientOptions(address, keyFile, file, token, tls, name, retryFor, verifyAll);
  }

  /** Returns these options with a token. */
  public ClientOptions withToken(Token t) {
    return new ClientOptions(address, keyFile, tokenFile, t, tls, name, retryFor, verifyAll);
  }

  /** Returns these options with files of TLS. */
  public ClientOptions withTls(TlsFiles files) {
    return new ClientOptions(address, keyFile, tokenFile, token, files, name, retryFor, verifyAll);
  }

  /** Returns these options with a name. */
  public ClientOptions withName(String n) {
    return new ClientOptions(address, keyFile, tokenFile, token, tls, n, retryFor, verifyAll);
  }

  /** Returns these options with another time to look for a daemon that went. */
  public ClientOptions withRetryFor(Duration d) {
    return new ClientOptions(address, keyFile, tokenFile, token, tls, name, d, verifyAll);
  }

  /** Returns these options with or without checks of all that is read. */
  public ClientOptions withVerifyAll(boolean all) {
    return new ClientOptions(address, keyFile, tokenFile, token, tls, name, retryFor, all);
  }
}
