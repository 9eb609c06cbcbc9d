package forebay.hadoop;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;

import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.ContractTestUtils;
import org.apache.hadoop.mapreduce.Counters;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.tools.DistCp;
import org.apache.hadoop.tools.DistCpOptions;
import org.apache.hadoop.tools.contract.AbstractContractDistCpTest;
import org.apache.hadoop.tools.mapred.CopyMapper.Counter;
import org.junit.Test;

/** DistCp's contract, copies between the local file system and bb://, and those between buffers. */
public class DistCpContractTest extends AbstractContractDistCpTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new BufferContract(impatient(conf), "distcp");
  }

  /**
   * Sets the poll interval, so that a job's end is detected at once, not at the next poll 5 s
   * later.
   */
  private static Configuration impatient(Configuration conf) {
    conf.setInt(Job.COMPLETION_POLL_INTERVAL_KEY, 20);
    conf.setInt(Job.PROGRESS_MONITOR_POLL_INTERVAL_KEY, 20);
    return conf;
  }

  private static Counters update(Path from, Path to) throws Exception {
    DistCpOptions o = new DistCpOptions.Builder(List.of(from), to).withSyncFolder(true).build();
    return new DistCp(impatient(TestBuffer.conf("distcp")), o).execute().getCounters();
  }

  /** Files of one size are distinguished by their checksums, at any times. */
  @Test
  public void testUpdateBetweenBuffers() throws Exception {
    FileSystem from = TestBuffer.fileSystem("distcp");
    FileSystem to = TestBuffer.fileSystem("distcp2");
    Path source = from.makeQualified(new Path("/between"));
    Path target = to.makeQualified(new Path("/between"));
    byte[] same = ContractTestUtils.dataset(200_000, 0, 255);
    byte[] other = ContractTestUtils.dataset(200_000, 1, 255);
    ContractTestUtils.createFile(from, new Path(source, "same"), true, same);
    ContractTestUtils.createFile(from, new Path(source, "changed"), true, same);
    assertEquals(2, update(source, target).findCounter(Counter.COPY).getValue());

    ContractTestUtils.createFile(from, new Path(source, "changed"), true, other);
    to.setTimes(new Path(target, "same"), 1000, -1);
    to.setTimes(new Path(target, "changed"), System.currentTimeMillis() + 3_600_000, -1);
    Counters again = update(source, target);
    assertEquals(1, again.findCounter(Counter.COPY).getValue());
    assertEquals(1, again.findCounter(Counter.SKIP).getValue());
    byte[] got = ContractTestUtils.readDataset(to, new Path(target, "changed"), other.length);
    assertArrayEquals(other, got);
  }
}
