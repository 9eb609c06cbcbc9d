package forebay.hadoop;

import static org.junit.Assert.assertEquals;

import java.net.URI;
import org.apache.hadoop.fs.FCStatisticsBaseTest;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContextPermissionBase;
import org.apache.hadoop.fs.FileContextTestHelper;
import org.apache.hadoop.fs.FileContextURIBase;
import org.apache.hadoop.fs.FileContextUtilBase;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.Path;
import org.junit.Before;
import org.junit.Ignore;
import org.junit.Test;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** Hadoop's suites of FileContext, and those older than the contract's, on bb://. */
@RunWith(Enclosed.class)
public class OlderSuitesTest {
  private static FileContextTestHelper helper() {
    return new FileContextTestHelper("/test/context");
  }

  public static class FileSystemContract extends FileSystemContractBaseTest {
    @Before
    public void setUp() throws Exception {
      fs = TestBuffer.fileSystem("old");
    }
  }

  public static class FileSystemMain extends FSMainOperationsBaseTest {
    public FileSystemMain() {
      super("/test/main");
    }

    @Override
    protected FileSystem createFileSystem() throws Exception {
      return TestBuffer.fileSystem("main");
    }

    @Override
    @Test
    @Ignore("the daemon's own user may read everything")
    public void testListStatusThrowsExceptionForUnreadableDir() {}

    @Override
    @Test
    @Ignore("the daemon's own user may read everything")
    public void testGlobStatusThrowsExceptionForUnreadableDir() {}
  }

  public static class ContextMain extends FileContextMainOperationsBaseTest {
    @Override
    protected FileContextTestHelper createFileContextHelper() {
      return helper();
    }

    @Override
    public void setUp() throws Exception {
      fc = TestBuffer.context("contextmain");
      super.setUp();
    }

    @Override
    protected boolean listCorruptedBlocksSupported() {
      return false;
    }

    @Override
    protected Path getDefaultWorkingDirectory() {
      return fc.getHomeDirectory();
    }
  }

  public static class ContextCreateMkdir extends FileContextCreateMkdirBaseTest {
    @Override
    protected FileContextTestHelper createFileContextHelper() {
      return helper();
    }

    @Override
    public void setUp() throws Exception {
      fc = TestBuffer.context("contextmkdir");
      super.setUp();
    }
  }

  public static class ContextPermission extends FileContextPermissionBase {
    @Override
    protected FileContextTestHelper getFileContextHelper() {
      return helper();
    }

    @Override
    protected FileContext getFileContext() throws Exception {
      return TestBuffer.context("contextpermission");
    }
  }

  public static class ContextStatistics extends FCStatisticsBaseTest {
    @Before
    public void open() throws Exception {
      fc = TestBuffer.context("contextstatistics");
    }

    @Override
    protected URI getFsUri() {
      return TestBuffer.uri("contextstatistics");
    }

    @Override
    protected void verifyReadBytes(FileSystem.Statistics s) {
      assertEquals(2 * blockSize, s.getBytesRead()); // at the position, and by one
    }

    @Override
    protected void verifyWrittenBytes(FileSystem.Statistics s) {
      assertEquals((long) numBlocks * blockSize, s.getBytesWritten());
    }
  }

  public static class ContextUri extends FileContextURIBase {
    @Override
    @Before
    public void setUp() throws Exception {
      fc1 = TestBuffer.context("contexturi");
      fc2 = fc1;
      super.setUp();
    }

    @Override
    @Test
    @Ignore("what a buffer takes up is not told")
    public void testFileStatus() {}
  }

  public static class ContextUtil extends FileContextUtilBase {
    @Override
    @Before
    public void setUp() throws Exception {
      fc = TestBuffer.context("contextutil");
      super.setUp();
    }
  }
}
