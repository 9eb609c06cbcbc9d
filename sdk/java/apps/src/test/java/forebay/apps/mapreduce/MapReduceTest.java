package forebay.apps.mapreduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import forebay.apps.Buffers;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.WordCount;
import org.apache.hadoop.examples.terasort.TeraChecksum;
import org.apache.hadoop.examples.terasort.TeraGen;
import org.apache.hadoop.examples.terasort.TeraSort;
import org.apache.hadoop.examples.terasort.TeraValidate;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.fs.slive.SliveTest;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Hadoop's own MapReduce programs, in its LocalJobRunner, with a buffer as the file system. */
class MapReduceTest {
  private static final int FILES = 4;
  private static final int FILE_MIB = 16;

  @TempDir static Path scratch;
  private static String uri;

  @BeforeAll
  static void makeBuffer() throws IOException {
    uri = Buffers.make("mapreduce");
  }

  private static Configuration conf() {
    return conf(uri);
  }

  private static Configuration conf(String fs) {
    Configuration conf = Buffers.conf(fs, scratch);
    conf.setInt("mapreduce.local.map.tasks.maximum", 2);
    conf.setInt("mapreduce.local.reduce.tasks.maximum", 2);
    conf.setInt("mapreduce.task.io.sort.mb", 16);
    // The poll interval of a wait for a job, which is 5 s by default.
    conf.setInt("mapreduce.client.completion.pollinterval", 50);
    conf.setInt("mapreduce.client.progressmonitor.pollinterval", 50);
    return conf;
  }

  private static void run(Tool program, Configuration conf, String... args) throws Exception {
    assertEquals(0, ToolRunner.run(conf, program, args), program.getClass() + " failed");
  }

  private static org.apache.hadoop.fs.Path path(String p) {
    return new org.apache.hadoop.fs.Path(p);
  }

  /**
   * Returns the lines of all files in a folder that a job wrote, and checks that its _SUCCESS is
   * there.
   */
  private static List<String> output(FileSystem fs, String dir) throws IOException {
    assertTrue(fs.exists(path(dir + "/_SUCCESS")), "the job's mark in " + dir);
    List<String> lines = new ArrayList<>();
    for (FileStatus part : fs.globStatus(path(dir + "/part-*"))) {
      try (BufferedReader r =
          new BufferedReader(
              new InputStreamReader(fs.open(part.getPath()), StandardCharsets.UTF_8))) {
        r.lines().forEach(lines::add);
      }
    }
    return lines;
  }

  @Test
  void dfsio() throws Exception {
    Configuration conf = conf();
    conf.set("test.build.data", "/dfsio");
    String results = scratch.resolve("dfsio").toString();
    String[] what = {
      "-nrFiles", "" + FILES, "-size", FILE_MIB + "MB", "-bufferSize", "1048576",
      "-resFile", results,
    };
    run(new TestDFSIO(), conf, with("-write", what));
    FileSystem fs = FileSystem.get(conf);
    FileStatus[] files = fs.listStatus(path("/dfsio/io_data"));
    assertEquals(FILES, files.length);
    for (FileStatus f : files) {
      assertEquals((long) FILE_MIB << 20, f.getLen(), f.getPath().toString());
    }
    run(new TestDFSIO(), conf, with("-read", what));
    String report = Files.readString(Path.of(results));
    assertTrue(report.contains(": write") && report.contains(": read"), report);
    String processed = "Total MBytes processed: +" + FILES * FILE_MIB + "\\b";
    assertEquals(2, Pattern.compile(processed).matcher(report).results().count(), report);
    run(new TestDFSIO(), conf, "-clean");
    assertFalse(fs.exists(path("/dfsio")));
  }

  private static String[] with(String first, String... rest) {
    List<String> all = new ArrayList<>(List.of(first));
    all.addAll(List.of(rest));
    return all.toArray(String[]::new);
  }

  @Test
  void teraSort() throws Exception {
    Configuration conf = conf();
    conf.setInt("mapreduce.job.maps", 2);
    conf.setInt("mapreduce.job.reduces", 2);
    FileSystem fs = FileSystem.get(conf);
    run(new TeraGen(), conf, "200000", "/tera/in");
    long bytes = 0;
    for (FileStatus part : fs.globStatus(path("/tera/in/part-*"))) {
      bytes += part.getLen();
    }
    assertEquals(20_000_000, bytes);
    run(new TeraSort(), conf, "/tera/in", "/tera/out");
    assertEquals(2, fs.globStatus(path("/tera/out/part-r-*")).length);
    run(new TeraChecksum(), conf, "/tera/in", "/tera/sum");
    run(new TeraValidate(), conf, "/tera/out", "/tera/report");

    // Rows out of order would be lines of the report, before the checksum of all rows.
    List<String> report = output(fs, "/tera/report");
    assertEquals(1, report.size(), report.toString());
    assertEquals("checksum\t" + output(fs, "/tera/sum").get(0), report.get(0));
  }

  @Test
  void wordCount() throws Exception {
    String local = Files.createDirectory(scratch.resolve("words")).toUri().toString();
    Map<String, Integer> want = new TreeMap<>();
    String text = text(want);
    List<List<String>> got = new ArrayList<>();
    for (Configuration conf : List.of(conf(), conf("file:///"))) {
      String dir = got.isEmpty() ? uri + "/words" : local;
      FileSystem fs = FileSystem.get(conf);
      try (Writer w =
          new OutputStreamWriter(fs.create(path(dir + "/in/text")), StandardCharsets.UTF_8)) {
        w.write(text);
      }
      countWords(conf, dir);
      got.add(output(fs, dir + "/out"));
    }
    List<String> lines = want.entrySet().stream().map(e -> e.getKey() + "\t" + e.getValue()).toList();
    assertEquals(lines, got.get(0));
    assertEquals(got.get(1), got.get(0));
  }

  /** Does the work of WordCount's main before it ends the JVM. */
  private static void countWords(Configuration conf, String dir) throws Exception {
    Job job = Job.getInstance(conf, "word count");
    job.setMapperClass(WordCount.TokenizerMapper.class);
    job.setCombinerClass(WordCount.IntSumReducer.class);
    job.setReducerClass(WordCount.IntSumReducer.class);
    job.setOutputKeyClass(Text.class);
    job.setOutputValueClass(IntWritable.class);
    FileInputFormat.addInputPath(job, path(dir + "/in"));
    FileOutputFormat.setOutputPath(job, path(dir + "/out"));
    assertTrue(job.waitForCompletion(false), "word count on " + dir);
  }

  private static String text(Map<String, Integer> count) {
    Random random = new Random(1);
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < 200_000; i++) {
      String word = "w" + (int) Math.abs(random.nextGaussian() * 1000);
      count.merge(word, 1, Integer::sum);
      text.append(word).append(i % 10 == 9 ? '\n' : ' ');
    }
    return text.toString();
  }

  @Test
  void slive() throws Exception {
    Path results = scratch.resolve("slive");
    SliveTest slive = new SliveTest(conf());
    String[] args = {
      "-baseDir", uri + "/slive", "-resFile", results.toString(), "-maps", "2", "-reduces", "1",
      "-ops", "600", "-files", "60", "-dirSize", "12", "-seed", "7",
      "-blockSize", "1048576,1048576", "-writeSize", "1,200000", "-appendSize", "1,50000",
      "-readSize", "1,250000", "-replication", "1,1",
      // Percents whose sum, in any order, is exactly 100 for SLive too.
      "-create", "25,uniform", "-append", "12.5,uniform", "-read", "25,uniform",
      "-rename", "12.5,uniform", "-ls", "12.5,uniform", "-mkdir", "6.25,uniform",
      "-delete", "6.25,uniform", "-truncate", "0,uniform",
    };
    assertEquals(0, slive.run(args));

    // SLive compares its reads with its writes. Operations on names that are not there
    // are counted too, since it looks names up at random.
    String report = Files.readString(results);
    assertTrue(measured(report, "ReadOp", "chunks_verified") > 0, report);
    assertEquals(0, measured(report, "ReadOp", "chunks_unverified"), report);
    for (String op : List.of("Create", "Append", "Read", "Rename", "List", "Mkdir", "Delete")) {
      assertTrue(measured(report, op + "Op", "successes") > 0, report);
    }
    assertFalse(report.contains("bad_files"), report);
  }

  /** Returns a figure of SLive's report on one kind of operation. */
  private static long measured(String report, String op, String figure) {
    String line = op + "\n(?:(?!Basic report).)*?\"" + figure + "\" = (\\d+)";
    Matcher m = Pattern.compile(line, Pattern.DOTALL).matcher(report);
    assertTrue(m.find(), figure + " of " + op + " in\n" + report);
    return Long.parseLong(m.group(1));
  }
}
