package forebay.client;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.Checksum;

/**
 * CRC-64/NVME (NVM Express, NVM Command Set Specification 1.0c, section 5.2.1.3.4), sixteen bytes a
 * step from tables. {@link #create} prefers the implementation of aws-crt, which uses the
 * processor's carry-less multiplication. It is for one thread.
 */
final class Crc64Nvme implements Checksum {
  private static final long REFLECTED = 0x9A6C9329AC4BC9B5L;
  private static final int STEP = 16;
  private static final long[] TABLES = tables();
  private static final VarHandle LONGS =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final MethodHandle NATIVE = findNative();
  private static final int SCRATCH = 64 << 10;
  private static final ThreadLocal<byte[]> SCRATCHES = ThreadLocal.withInitial(() -> new byte[SCRATCH]);

  private long state = ~0L;

  /** Returns the fastest implementation there is. */
  static Checksum create() {
    if (NATIVE == null) {
      return new Crc64Nvme();
    }
    try {
      return (Checksum) NATIVE.invokeExact();
    } catch (Throwable e) {
      return new Crc64Nvme();
    }
  }

  /** Reports whether {@link #create} returns the one of aws-crt. */
  static boolean isNative() {
    return NATIVE != null;
  }

  /** Adds the bytes [at, at+length) of a buffer, whose position and limit do not matter. */
  static void update(Checksum sum, ByteBuffer b, int at, int length) {
    if (b.hasArray()) {
      sum.update(b.array(), b.arrayOffset() + at, length);
    } else if (sum instanceof Crc64Nvme own) {
      own.updateDirect(b, at, length);
    } else {
      byte[] scratch = SCRATCHES.get();
      for (int n; length > 0; at += n, length -= n) {
        n = Math.min(length, SCRATCH);
        b.get(at, scratch, 0, n);
        sum.update(scratch, 0, n);
      }
    }
  }

  /** Returns the checksum of the bytes [at, at+length) of a buffer. */
  static long of(ByteBuffer b, int at, int length) {
    Checksum sum = create();
    update(sum, b, at, length);
    return sum.getValue();
  }

  /** Returns the checksum of some bytes of an array. */
  static long of(byte[] b, int at, int length) {
    Checksum sum = create();
    sum.update(b, at, length);
    return sum.getValue();
  }

  private static MethodHandle findNative() {
    try {
      Class<?> c = Class.forName("software.amazon.awssdk.crt.checksums.CRC64NVME");
      MethodHandle make =
          MethodHandles.publicLookup()
              .findConstructor(c, MethodType.methodType(void.class))
              .asType(MethodType.methodType(Checksum.class));
      byte[] check = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
      Checksum sum = (Checksum) make.invokeExact();
      sum.update(check, 0, check.length);
      return sum.getValue() == 0xAE8B14860A799888L ? make : null;
    } catch (Throwable e) { // it is not there, or has no library for this machine
      return null;
    }
  }

  private static long[] tables() {
    long[] t = new long[STEP * 256];
    for (int i = 0; i < 256; i++) {
      long c = i;
      for (int k = 0; k < 8; k++) {
        c = (c >>> 1) ^ (REFLECTED & -(c & 1));
      }
      t[i] = c;
    }
    for (int i = 256; i < t.length; i++) {
      t[i] = t[(int) (t[i - 256] & 0xff)] ^ (t[i - 256] >>> 8);
    }
    return t;
  }

  private static long step(long a, long b) {
    long[] t = TABLES;
    return t[15 << 8 | (int) (a & 0xff)]
        ^ t[14 << 8 | (int) (a >>> 8 & 0xff)]
        ^ t[13 << 8 | (int) (a >>> 16 & 0xff)]
        ^ t[12 << 8 | (int) (a >>> 24 & 0xff)]
        ^ t[11 << 8 | (int) (a >>> 32 & 0xff)]
        ^ t[10 << 8 | (int) (a >>> 40 & 0xff)]
        ^ t[9 << 8 | (int) (a >>> 48 & 0xff)]
        ^ t[8 << 8 | (int) (a >>> 56)]
        ^ t[7 << 8 | (int) (b & 0xff)]
        ^ t[6 << 8 | (int) (b >>> 8 & 0xff)]
        ^ t[5 << 8 | (int) (b >>> 16 & 0xff)]
        ^ t[4 << 8 | (int) (b >>> 24 & 0xff)]
        ^ t[3 << 8 | (int) (b >>> 32 & 0xff)]
        ^ t[2 << 8 | (int) (b >>> 40 & 0xff)]
        ^ t[1 << 8 | (int) (b >>> 48 & 0xff)]
        ^ t[(int) (b >>> 56)];
  }

  @Override
  public void update(int b) {
    state = TABLES[(int) ((state ^ b) & 0xff)] ^ (state >>> 8);
  }

  @Override
  public void update(byte[] b, int off, int len) {
    long s = state;
    int end = off + len;
    for (; end - off >= STEP; off += STEP) {
      s = step(s ^ (long) LONGS.get(b, off), (long) LONGS.get(b, off + 8));
    }
    for (; off < end; off++) {
      s = TABLES[(int) ((s ^ b[off]) & 0xff)] ^ (s >>> 8);
    }
    state = s;
  }

  private void updateDirect(ByteBuffer b, int at, int length) {
    long s = state;
    boolean little = b.order() == ByteOrder.LITTLE_ENDIAN;
    int end = at + length;
    for (; end - at >= STEP; at += STEP) {
      long x = b.getLong(at);
      long y = b.getLong(at + 8);
      s = little ? step(s ^ x, y) : step(s ^ Long.reverseBytes(x), Long.reverseBytes(y));
    }
    for (; at < end; at++) {
      s = TABLES[(int) ((s ^ b.get(at)) & 0xff)] ^ (s >>> 8);
    }
    state = s;
  }

  @Override
  public long getValue() {
    return ~state;
  }

  @Override
  public void reset() {
    state = ~0L;
  }
}
