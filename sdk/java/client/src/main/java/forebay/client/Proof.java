package forebay.client;

import forebay.v1.Forebay;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.List;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * The proof of a key that both sides of a handshake give each other. It is HMAC-SHA-256
 * (RFC 2104) over both nonces and all claims to the other side, each field preceded by its
 * length in four bytes. See Prove in internal/wire/forebay.proto.
 */
final class Proof {
  static final int NONCE = 32;
  private static final int LENGTH = 32;
  private static final int MAX_PROOFS = 16;

  private final byte[] client;
  private final byte[] daemon;
  private final byte[] channel;

  /** Channel is that of the TLS connection (RFC 9266), empty without TLS. */
  Proof(byte[] clientNonce, byte[] daemonNonce, byte[] channel) {
    client = clientNonce;
    daemon = daemonNonce;
    this.channel = channel;
  }

  /** Returns the first of our keys that the daemon has proven, or null if there is none. */
  byte[] common(byte[] theirs, List<byte[]> keys) {
    if (theirs.length > MAX_PROOFS * LENGTH || daemon.length != NONCE) {
      return null;
    }
    for (byte[] key : keys) {
      byte[] mine = proof(key, "daemon", null);
      for (int at = 0; at + LENGTH <= theirs.length; at += LENGTH) {
        if (MessageDigest.isEqual(mine, Arrays.copyOfRange(theirs, at, at + LENGTH))) {
          return key;
        }
      }
    }
    return null;
  }

  /** Proves a key, bound to all claims that decide our rights. */
  byte[] client(byte[] key, Forebay.Hello hello) {
    return proof(key, "client", hello);
  }

  private byte[] proof(byte[] key, String role, Forebay.Hello hello) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      field(mac, ("forebay session 2 " + role).getBytes(StandardCharsets.UTF_8));
      field(mac, client);
      field(mac, daemon);
      field(mac, channel);
      if (hello != null) {
        ByteBuffer who = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
        who.putInt(hello.getUid()).putInt(hello.getGid());
        who.putInt(hello.getMinVersion()).putInt(hello.getMaxVersion());
        who.putLong(hello.getInstance());
        field(mac, who.array());
        field(mac, hello.getNodeBytes().toByteArray());
        field(mac, hello.getToken().toByteArray());
      }
      return mac.doFinal();
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e); // every JDK has it
    }
  }

  private static void field(Mac mac, byte[] bytes) {
    mac.update(
        ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(bytes.length).array());
    mac.update(bytes);
  }
}
