package forebay.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * A client's secrets for TCP: keys, or a token, whose claims it sends.
 *
 * @param token null without one. Its secret is the only key
 */
record Secrets(List<byte[]> keys, Token token) {
  private static final int MAX_FILE = 64 << 10;
  private static final int MIN_KEY = 32;
  private static final int MAX_KEYS = 4;

  static Secrets read(ClientOptions o) throws IOException {
    if (o.token() != null) {
      return of(o.token());
    }
    Path token = orEnv(o.tokenFile(), "FOREBAY_TOKEN_FILE");
    if (token != null) {
      return of(readToken(token));
    }
    Path key = orEnv(o.keyFile(), "FOREBAY_KEY_FILE");
    return new Secrets(key == null ? List.of() : readKeys(key), null);
  }

  static Path orEnv(Path given, String name) {
    String env = System.getenv(name);
    return given != null || env == null || env.isEmpty() ? given : Path.of(env);
  }

  private static List<byte[]> readKeys(Path file) throws IOException {
    List<byte[]> keys = new ArrayList<>();
    for (String line : readSecret(file).split("\n")) {
      line = line.strip();
      if (line.isEmpty() || line.startsWith("#")) {
        continue;
      }
      if (line.length() < MIN_KEY) {
        throw new ForebayException(
            Kind.INVALID,
            "cluster key",
            file.toString(),
            "a key has fewer than " + MIN_KEY + " characters",
            "make one: bbctl cluster init DIR");
      }
      keys.add(line.getBytes(StandardCharsets.UTF_8));
    }
    if (keys.isEmpty() || keys.size() > MAX_KEYS) {
      throw new ForebayException(
          Kind.INVALID,
          "cluster key",
          file.toString(),
          "the file holds " + keys.size() + " keys, not 1 to " + MAX_KEYS,
          "make one: bbctl cluster init DIR");
    }
    return keys;
  }

  private static Secrets of(Token t) {
    return new Secrets(List.of(t.secret()), t);
  }

  private static Token readToken(Path file) throws IOException {
    String text = readSecret(file);
    try {
      return Token.parse(text);
    } catch (ForebayException e) {
      throw ForebayException.about("token", file.toString(), e);
    }
  }

  /** Reads a file that only its owner may be able to read. */
  static String readSecret(Path file) throws IOException {
    try {
      Set<PosixFilePermission> mode = Files.getPosixFilePermissions(file);
      mode.removeAll(
          Set.of(
              PosixFilePermission.OWNER_READ,
              PosixFilePermission.OWNER_WRITE,
              PosixFilePermission.OWNER_EXECUTE));
      if (!mode.isEmpty()) {
        throw new ForebayException(
            Kind.PERMISSION,
            "read secret",
            file.toString(),
            "other users can read it or change it",
            "chmod 600 " + file);
      }
      if (Files.size(file) > MAX_FILE) {
        throw new ForebayException(
            Kind.INVALID, "read secret", file.toString(), "it is too large");
      }
      return Files.readString(file);
    } catch (NoSuchFileException e) {
      throw new ForebayException(Kind.NOT_FOUND, "read secret", file.toString(), "it is not there");
    }
  }

  /** Keeps keys out of printed text. */
  @Override
  public String toString() {
    return "secrets";
  }
}
