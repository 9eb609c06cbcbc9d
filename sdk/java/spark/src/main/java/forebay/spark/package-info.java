/**
 * Additions to {@link forebay.hadoop} for Spark SQL: to commit, and replace partitions, in one step.
 * docs/hadoop.md describes its settings.
 */
package forebay.spark;
