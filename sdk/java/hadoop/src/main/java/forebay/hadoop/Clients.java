package forebay.hadoop;

import forebay.client.Client;
import forebay.client.ClientOptions;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/**
 * Clients that the file systems of a process share, one for each daemon, so that each region is
 * mapped once. The last user closes one.
 */
final class Clients {
  private static final Map<ClientOptions, Shared> ALL = new HashMap<>(); // guards itself and users

  private Clients() {}

  /** A client and how many use it. */
  static final class Shared {
    private final ClientOptions options;
    private final Client client;
    private int users;

    private Shared(ClientOptions options) throws IOException {
      this.options = options;
      client = Client.dial(options);
    }

    Client client() {
      return client;
    }

    void release() {
      synchronized (ALL) {
        if (--users > 0) {
          return;
        }
        ALL.remove(options);
      }
      client.close();
    }
  }

  static Shared acquire(ClientOptions o) throws IOException {
    synchronized (ALL) {
      Shared s = ALL.get(o);
      if (s == null) {
        s = new Shared(o);
        ALL.put(o, s);
      }
      s.users++;
      return s;
    }
  }
}
