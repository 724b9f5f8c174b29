package snic.ycsb;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * How often YCSB's core workload reads each key: {@code KeyFrequencies KEYS OPERATIONS} prints a line with name and count for
 * each key that was read. What else chooses keys like YCSB is compared with it.
 */
public final class KeyFrequencies {
  private KeyFrequencies() {}

  /** Counts, and has nothing stored. */
  private static final class Counting extends DB {
    private final Map<String, Integer> counts = new TreeMap<>();

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
      counts.merge(key, 1, Integer::sum);
      return Status.OK;
    }

    @Override
    public Status scan(
        String table, String start, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
      return Status.NOT_IMPLEMENTED;
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
      return Status.NOT_IMPLEMENTED;
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
      return Status.NOT_IMPLEMENTED;
    }

    @Override
    public Status delete(String table, String key) {
      return Status.NOT_IMPLEMENTED;
    }
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("expected: KeyFrequencies KEYS OPERATIONS");
      System.exit(2);
    }
    Properties workloadC = new Properties();
    workloadC.setProperty("recordcount", arguments[0]);
    workloadC.setProperty("operationcount", arguments[1]);
    workloadC.setProperty("readproportion", "1");
    workloadC.setProperty("updateproportion", "0");
    workloadC.setProperty("requestdistribution", "zipfian");
    Measurements.setProperties(workloadC);
    CoreWorkload workload = new CoreWorkload();
    workload.init(workloadC);
    Counting counting = new Counting();
    for (int left = Integer.parseInt(arguments[1]); left > 0; left--) {
      workload.doTransaction(counting, null);
    }
    StringBuilder lines = new StringBuilder();
    counting.counts.forEach((key, count) -> lines.append(key).append(' ').append(count).append('\n'));
    System.out.print(lines);
  }
}
