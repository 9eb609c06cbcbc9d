/**
 * Spark jobs that tests and benchmarks run on any Hadoop file system. They have no part of Forebay.
 * Only their addresses name the store.
 */
package forebay.apps.spark;
