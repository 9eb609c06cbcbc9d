package forebay.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.client.testing.Daemon;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The memory of a lease is locked in the region's file as long as the lease may be written to. */
@Timeout(180)
class LeaseLockTest {
  private static final Daemon DAEMON = Daemon.get();

  private static Client dial() throws IOException {
    return Client.dial(ClientOptions.defaults().withAddress(DAEMON.socket()));
  }

  /** Counts the locks that this process has on byte ranges, as the kernel shows them. */
  private static long locks() {
    String own = " POSIX ADVISORY READ " + ProcessHandle.current().pid() + " ";
    try {
      return Files.readAllLines(Path.of("/proc/locks")).stream()
          .filter(l -> l.replaceAll(" +", " ").contains(own))
          .count();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static void await(BooleanSupplier done) throws InterruptedException {
    for (int i = 0; i < 60_000 && !done.getAsBoolean(); i++) {
      Thread.sleep(1);
    }
    assertTrue(done.getAsBoolean());
  }

  @Test
  void locksOutliveOtherClientsAndTheDaemon() throws Exception {
    await(() -> locks() == 0); // leases of other tests are returned a second later
    byte[] want = new byte[3 << 20];
    new Random(5).nextBytes(want);
    try (Client c = dial()) {
      c.createBuffer(BufferSpec.named("locks", ""));
      Buffer b = c.buffer("locks");
      try (Output out = b.create("f")) {
        out.write(want, 0, want.length / 2);
        long held = locks();
        assertTrue(held > 0, "nothing is locked");
        try (Client other = dial();
            Output too = other.buffer("locks").create("g")) {
          too.write(want, 0, want.length);
        }
        await(() -> locks() == held); // closing the other client's files has not dropped these
        DAEMON.kill();
        assertEquals(held, locks());
        DAEMON.start();
        out.write(want, want.length / 2, want.length - want.length / 2);
      }
      byte[] got = new byte[want.length];
      try (Input in = b.open("f")) {
        assertEquals(got.length, in.read(0, got, 0, got.length));
      }
      assertArrayEquals(want, got);
    }
    await(() -> locks() == 0);
  }
}
