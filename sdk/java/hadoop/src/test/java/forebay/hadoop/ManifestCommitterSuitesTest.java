package forebay.hadoop;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestCleanupStage;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestCommitTaskStage;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestCreateOutputDirectoriesStage;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestJobThroughManifestCommitter;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestLoadManifestsStage;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestManifestCommitProtocol;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestRenameStageFailure;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.TestTaskManifestFileIO;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** The suites of Hadoop's manifest committer, which commits by renaming files, on bb://. */
@RunWith(Enclosed.class)
public class ManifestCommitterSuitesTest {
  private static AbstractFSContract contract(Configuration conf) {
    return new BufferContract(conf, "manifest");
  }

  public static class Cleanup extends TestCleanupStage {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  public static class CommitProtocol extends TestManifestCommitProtocol {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  /** Its tests wait for 50 s together, between attempts at failing calls. */
  @RunWith(AtOnceRunner.class)
  public static class CommitTask extends TestCommitTaskStage {
    private static final AtomicInteger TESTS = new AtomicInteger();

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new BufferContract(conf, "manifest", "/task" + TESTS.incrementAndGet());
    }
  }

  public static class CreateOutputDirectories extends TestCreateOutputDirectoriesStage {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  public static class Job extends TestJobThroughManifestCommitter {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  public static class LoadManifests extends TestLoadManifestsStage {
    @Override
    protected int numberOfTaskAttempts() {
      return 50;
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  public static class ManifestFiles extends TestTaskManifestFileIO {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }

  public static class RenameFailure extends TestRenameStageFailure {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return contract(conf);
    }
  }
}
