/**
 * A client of a Forebay daemon: {@link forebay.client.Client} connects, {@link forebay.client.Buffer}
 * is a namespace, {@link forebay.client.Output} and {@link forebay.client.Input} are open files.
 *
 * <p>On the node of a daemon, bytes move through mapped regions. A write copies them once, a read
 * once, a {@link forebay.client.Mapping} not at all. Elsewhere, over TCP, they travel in messages.
 * All operations continue after a daemon was killed and started again. The package depends on the
 * control protocol (internal/wire/forebay.proto) and not on Hadoop.
 *
 * <p>Checksums are CRC-64/NVME, by aws-crt, if it is on the class path, else from tables. Measured
 * on JDK 17, 1 MiB at a time, on two cores that others used too: aws-crt 29 GiB/s from an array and
 * 12 from mapped memory (which it gets in pieces of 64 KiB), tables 0.9, a copy alone 24.
 */
package forebay.client;
