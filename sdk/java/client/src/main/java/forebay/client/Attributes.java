package forebay.client;

/**
 * Attributes of an entry to change. Null fields stay as they are.
 *
 * @param mode permission bits
 * @param modified nanoseconds since the Unix epoch
 */
public record Attributes(Integer mode, Integer uid, Integer gid, Long modified) {}
