/**
 * Buffers as Hadoop's file system {@code bb://BUFFER/path}, with the rules of HDFS. It knows Hadoop
 * and {@link forebay.client}, and nothing of the protocol. docs/hadoop.md describes it.
 */
package forebay.hadoop;
