/**
 * Spark jobs that tests and benchmarks run on any Hadoop file system. They have no part of Forebay:
 * which store it is, only their addresses say.
 */
package forebay.apps.spark;
