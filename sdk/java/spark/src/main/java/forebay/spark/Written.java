package forebay.spark;

import java.io.Serializable;
import java.util.Set;

/**
 * A task's report of its output to the driver.
 *
 * @param partitions directories, relative to the destination, that it wrote to
 * @param locations directories elsewhere, which partitions have of their own
 * @param adopted whether its files are the task's output. If not, an earlier attempt's are, which
 * may
 *     have written to other partitions
 */
record Written(Set<String> partitions, Set<String> locations, boolean adopted)
    implements Serializable {}
