/**
 * Buffers as Hadoop's file system {@code bb://BUFFER/path}, with the rules of HDFS. It depends on Hadoop
 * and {@link forebay.client}, and not on the protocol. docs/hadoop.md describes it.
 */
package forebay.hadoop;
