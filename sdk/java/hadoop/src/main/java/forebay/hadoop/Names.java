package forebay.hadoop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Names of users and groups, by this machine's files. Others are their numbers. */
final class Names {
  static final Names USERS = new Names(Path.of("/etc/passwd"));
  static final Names GROUPS = new Names(Path.of("/etc/group"));

  private final Map<Integer, String> byId = new HashMap<>();
  private final Map<String, Integer> byName = new HashMap<>();

  private Names(Path file) {
    List<String> lines;
    try {
      lines = Files.readAllLines(file);
    } catch (IOException e) {
      lines = List.of();
    }
    for (String line : lines) {
      String[] field = line.split(":");
      try {
        int id = Integer.parseUnsignedInt(field[2]);
        byId.putIfAbsent(id, field[0]);
        byName.putIfAbsent(field[0], id);
      } catch (NumberFormatException | ArrayIndexOutOfBoundsException e) {
        // A comment, or an entry of a name service.
      }
    }
  }

  String of(int id) {
    String name = byId.get(id);
    return name != null ? name : Integer.toUnsignedString(id);
  }

  int idOf(String name) throws IOException {
    Integer id = byName.get(name);
    if (id != null) {
      return id;
    }
    try {
      return Integer.parseUnsignedInt(name);
    } catch (NumberFormatException e) {
      throw new IOException("this machine does not know the name " + name + ": give the number", e);
    }
  }
}
