package forebay.hadoop;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.hadoop.fs.FileChecksum;

/** CRC-64/NVME of a whole file, by which DistCp compares the files of two buffers. */
public final class ForebayChecksum extends FileChecksum {
  private long sum;

  /** For reading one from a stream. */
  public ForebayChecksum() {}

  ForebayChecksum(long sum) {
    this.sum = sum;
  }

  @Override
  public String getAlgorithmName() {
    return "CRC-64/NVME";
  }

  @Override
  public int getLength() {
    return Long.BYTES;
  }

  @Override
  public byte[] getBytes() {
    return ByteBuffer.allocate(Long.BYTES).putLong(sum).array();
  }

  @Override
  public void write(DataOutput out) throws IOException {
    out.writeLong(sum);
  }

  @Override
  public void readFields(DataInput in) throws IOException {
    sum = in.readLong();
  }
}
