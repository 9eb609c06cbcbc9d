/**
 * What Spark SQL needs beyond {@link forebay.hadoop}: to commit, and replace partitions, in one step.
 * docs/hadoop.md says how it is set.
 */
package forebay.spark;
