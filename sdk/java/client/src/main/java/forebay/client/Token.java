package forebay.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;

/**
 * Lets a client that comes over TCP into one buffer, as the buffer's owner, until it expires. Every
 * holder can use it, so treat it like a key. internal/wire/token.go draws it.
 */
public final class Token {
  private static final byte VERSION = 1;
  private static final int EXPIRES = 1 + 4 + 4;
  private static final int FIXED = EXPIRES + 8 + 8 + 16;
  private static final int SECRET = 32;
  private static final String TEXT = "forebay-token-1.";

  private final byte[] claims;
  private final byte[] secret;

  /**
   * Puts the parts of a token together again.
   *
   * @throws ForebayException of kind invalid if they are not of a version of this release
   */
  public Token(byte[] claims, byte[] secret) throws ForebayException {
    if (claims.length < FIXED || claims[0] != VERSION || secret.length != SECRET) {
      throw unknown();
    }
    this.claims = claims.clone();
    this.secret = secret.clone();
  }

  /** Reads the text that bbctl token writes. White space around it does not count. */
  public static Token parse(String text) throws ForebayException {
    String t = text.strip();
    if (!t.startsWith(TEXT)) {
      throw unknown();
    }
    try {
      return of(Base64.getUrlDecoder().decode(t.substring(TEXT.length())));
    } catch (IllegalArgumentException e) {
      throw unknown();
    }
  }

  /** Takes claims and secret, one after the other. */
  static Token of(byte[] all) throws ForebayException {
    int split = Math.max(0, all.length - SECRET);
    return new Token(Arrays.copyOf(all, split), Arrays.copyOfRange(all, split, all.length));
  }

  private static ForebayException unknown() {
    return new ForebayException(
        Kind.INVALID,
        "token",
        "",
        "it is not a token of a version that this release supports",
        "make one: bbctl token BUFFER");
  }

  /** Returns its claims, which a client sends. */
  public byte[] claims() {
    return claims.clone();
  }

  /** Returns its secret, which is never sent. */
  public byte[] secret() {
    return secret.clone();
  }

  /** Returns the name of the buffer that it lets into. */
  public String buffer() {
    return new String(claims, FIXED, claims.length - FIXED, StandardCharsets.UTF_8);
  }

  /** Returns when it ends, and the sessions that it began with it. */
  public Instant expires() {
    long ns = ByteBuffer.wrap(claims).order(ByteOrder.LITTLE_ENDIAN).getLong(EXPIRES);
    return Instant.ofEpochSecond(0, ns);
  }

  @Override
  public boolean equals(Object o) {
    return o instanceof Token t
        && Arrays.equals(claims, t.claims)
        && Arrays.equals(secret, t.secret);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(claims);
  }

  /** Keeps the secret out of printed text. */
  @Override
  public String toString() {
    return "token of bb://" + buffer() + " until " + expires();
  }
}
