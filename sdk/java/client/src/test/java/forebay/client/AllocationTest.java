package forebay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import forebay.client.testing.Daemon;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The garbage of reading and writing, on the thread of the calls. */
@Timeout(120)
class AllocationTest {
  private static final ThreadMXBean THREADS =
      (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private static final int MIB = 1 << 20;

  private Client client;
  private Buffer buffer;

  /** The calls that are to allocate nothing. */
  private interface Step {
    void run() throws IOException;
  }

  @BeforeEach
  void dial() throws Exception {
    Daemon.get().start();
    client = Client.dial(ClientOptions.defaults().withAddress(Daemon.get().socket()));
    client.createBuffer(BufferSpec.named("allocation", ""));
    buffer = client.buffer("allocation");
  }

  @AfterEach
  void close() throws Exception {
    client.destroyBuffer("allocation", true);
    client.close();
  }

  private static long allocated(Step s) throws IOException {
    long before = THREADS.getCurrentThreadAllocatedBytes();
    s.run();
    return THREADS.getCurrentThreadAllocatedBytes() - before;
  }

  /**
   * All writes but one or two in each MiB, which begin an extent or take another lease. A whole
   * extent costs its description, and a lease a message now and then. No copy is among them.
   */
  @Test
  void writesAllocateNothing() throws Exception {
    byte[] array = new byte[4096];
    ByteBuffer direct = ByteBuffer.allocateDirect(4096);
    int mibs = 16;
    try (Output out = buffer.create("small")) {
      Step[] steps = {
        () -> out.write(array, 0, array.length), () -> out.write(direct.clear()), () -> out.write(7)
      };
      for (Step s : steps) {
        s.run(); // initialisers of classes
      }
      int garbage = 0;
      for (int i = 0; out.position() < mibs * MIB; i++) {
        garbage += allocated(steps[i % steps.length]) > 0 ? 1 : 0;
      }
      assertTrue(garbage <= 2 * mibs, garbage + " writes into " + mibs + " MiB allocated");

      byte[] large = new byte[MIB];
      int n = 64;
      long bytes =
          allocated(
              () -> {
                for (int i = 0; i < n; i++) {
                  out.write(large, 0, MIB);
                }
              });
      assertTrue(bytes / n < 1024, bytes / n + " bytes of garbage for each MiB");
    }
  }

  /** All reads but the first of each extent, which has it checked. */
  @Test
  void readsAllocateNothing() throws Exception {
    byte[] array = new byte[4096];
    ByteBuffer direct = ByteBuffer.allocateDirect(4096);
    int mibs = 16;
    try (Output out = buffer.create("read")) {
      out.write(new byte[mibs * MIB], 0, mibs * MIB);
    }
    try (Input in = buffer.open("read")) {
      in.read(0, direct.clear());
      int garbage = 0;
      for (int at = 0; at < mibs * MIB; at += 2 * array.length) {
        int here = at;
        Step s =
            () -> {
              assertEquals(array.length, in.read(here, array, 0, array.length));
              in.read(here + array.length, direct.clear());
            };
        garbage += allocated(s) > 0 ? 1 : 0;
      }
      assertTrue(garbage <= 2 * mibs, garbage + " reads of " + mibs + " MiB allocated");
    }
  }
}
