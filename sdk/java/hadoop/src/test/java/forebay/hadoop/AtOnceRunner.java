package forebay.hadoop;

import java.util.ArrayList;
import java.util.List;
import org.junit.runners.BlockJUnit4ClassRunner;
import org.junit.runners.model.InitializationError;
import org.junit.runners.model.RunnerScheduler;

/**
 * Runs all tests of a class at once, each in a thread of its own. It is for suites whose tests
 * mostly sleep between attempts, and share nothing.
 */
public final class AtOnceRunner extends BlockJUnit4ClassRunner {
  public AtOnceRunner(Class<?> type) throws InitializationError {
    super(type);
    setScheduler(
        new RunnerScheduler() {
          private final List<Thread> all = new ArrayList<>();

          @Override
          public void schedule(Runnable test) {
            Thread t = new Thread(test, type.getSimpleName() + "-" + all.size());
            all.add(t);
            t.start();
          }

          @Override
          public void finished() {
            for (Thread t : all) {
              try {
                t.join();
              } catch (InterruptedException e) {
                throw new IllegalStateException("interrupted while tests run", e);
              }
            }
          }
        });
  }
}
