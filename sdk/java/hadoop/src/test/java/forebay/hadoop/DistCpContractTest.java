package forebay.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.tools.contract.AbstractContractDistCpTest;

/** DistCp's contract: copies between the local file system and bb://. */
public class DistCpContractTest extends AbstractContractDistCpTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new BufferContract(conf, "distcp");
  }
}
