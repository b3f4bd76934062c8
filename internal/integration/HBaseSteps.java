import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Steps that HBase's Thrift2 gateway cannot make, for the tests beside this file. A line of the
 * input is ID, command, table (of "drop" a namespace) and keys in hexadecimal, with tabs between; a line of the output
 * is the ID and "ok", or the ID, the class of an exception and what it says. Steps run at the same
 * time; the program ends with its input.
 */
public class HBaseSteps {
  public static void main(String[] args) throws Exception {
    ExecutorService steps = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        String[] fields = line.split("\t", -1);
        steps.execute(() -> answer(fields[0], run(connection, fields)));
      }
    }
    System.exit(0);
  }

  private static synchronized void answer(String id, Throwable failed) {
    String said = "ok";
    if (failed != null) {
      said = failed.getClass().getName() + "\t" + String.valueOf(failed.getMessage()).replaceAll("\\s+", " ");
    }
    System.out.println(id + "\t" + said);
  }

  /** Returns how the step failed, or null. */
  private static Throwable run(Connection connection, String[] fields) {
    try (Admin admin = connection.getAdmin()) {
      if (fields[1].equals("drop")) {
        if (!Arrays.asList(admin.listNamespaces()).contains(fields[2])) {
          return null;
        }
        for (TableName name : admin.listTableNamesByNamespace(fields[2])) {
          if (admin.isTableEnabled(name)) {
            admin.disableTable(name);
          }
          admin.deleteTable(name);
        }
        return null;
      }
      TableName table = TableName.valueOf(fields[2]);
      byte[][] keys = new byte[fields.length - 3][];
      for (int i = 0; i < keys.length; i++) {
        keys[i] = HexFormat.of().parseHex(fields[3 + i]);
      }
      switch (fields[1]) {
        case "flush" -> admin.flush(table);
        case "major" -> {
          admin.majorCompact(table);
          compacted(admin, table);
        }
        case "minor" -> {
          compactTwo(admin, table);
          admin.compact(table);
          compacted(admin, table);
        }
        case "split" -> {
          byte[] region = region(admin, table, keys.length > 0 ? keys[0] : new byte[0]).getRegionName();
          (keys.length > 0 ? admin.splitRegionAsync(region, keys[0]) : admin.splitRegionAsync(region)).get();
        }
        case "merge" -> {
          byte[][] regions = new byte[keys.length][];
          for (int i = 0; i < keys.length; i++) {
            regions[i] = region(admin, table, keys[i]).getRegionName();
          }
          admin.mergeRegionsAsync(regions, false).get();
        }
        default -> throw new IllegalStateException("no step " + fields[1]);
      }
      return null;
    } catch (ExecutionException e) {
      return e.getCause();
    } catch (Throwable e) {
      return e;
    }
  }

  /** Has minor compactions take two files, where three is the least by default. */
  private static void compactTwo(Admin admin, TableName table) throws Exception {
    TableDescriptorBuilder changed = TableDescriptorBuilder.newBuilder(admin.getDescriptor(table));
    for (ColumnFamilyDescriptor f : admin.getDescriptor(table).getColumnFamilies()) {
      changed.modifyColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(f).setConfiguration("hbase.hstore.compaction.min", "2").build());
    }
    admin.modifyTable(changed.build());
  }

  /** Waits for compactions: the call that asks for them returns when they are queued. */
  private static void compacted(Admin admin, TableName table) throws Exception {
    while (admin.getCompactionState(table) != CompactionState.NONE) {
      Thread.sleep(20);
    }
  }

  private static RegionInfo region(Admin admin, TableName table, byte[] row) throws Exception {
    for (RegionInfo r : admin.getRegions(table)) {
      if (Bytes.compareTo(r.getStartKey(), row) <= 0 && (r.getEndKey().length == 0 || Bytes.compareTo(row, r.getEndKey()) < 0)) {
        return r;
      }
    }
    throw new IllegalStateException("no region has the row");
  }
}
