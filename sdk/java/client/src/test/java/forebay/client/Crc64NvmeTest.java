package forebay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.zip.Checksum;
import org.junit.jupiter.api.Test;

class Crc64NvmeTest {
  @Test
  void checkValueOfTheStandard() {
    byte[] b = "123456789".getBytes(StandardCharsets.US_ASCII);
    assertEquals(0xAE8B14860A799888L, Crc64Nvme.of(b, 0, b.length));
  }

  /** All ways to compute it agree with the one bit by bit, in any pieces. */
  @Test
  void allWaysAgree() {
    assertTrue(Crc64Nvme.isNative(), "aws-crt is on the class path of the tests");
    Random r = new Random(1);
    for (int i = 0; i < 200; i++) {
      byte[] b = new byte[r.nextInt(i < 190 ? 300 : 200_000)];
      r.nextBytes(b);
      long want = bitwise(b);
      Checksum own = new Crc64Nvme();
      Checksum best = Crc64Nvme.create();
      Checksum direct = new Crc64Nvme();
      ByteBuffer d = ByteBuffer.allocateDirect(b.length + 7).position(7).put(b);
      d.order(r.nextBoolean() ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN);
      for (int at = 0; at < b.length; ) {
        int n = 1 + r.nextInt(b.length - at);
        own.update(b, at, n);
        Crc64Nvme.update(best, d, 7 + at, n);
        Crc64Nvme.update(direct, d, 7 + at, n);
        at += n;
      }
      assertEquals(want, own.getValue());
      assertEquals(want, best.getValue());
      assertEquals(want, direct.getValue());
      assertEquals(want, Crc64Nvme.of(b, 0, b.length));
    }
  }

  private static long bitwise(byte[] b) {
    long c = ~0L;
    for (byte x : b) {
      c ^= x & 0xff;
      for (int i = 0; i < 8; i++) {
        c = (c >>> 1) ^ ((c & 1) == 0 ? 0 : 0x9A6C9329AC4BC9B5L);
      }
    }
    return ~c;
  }
}
