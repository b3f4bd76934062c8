import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.thrift2.ThriftServer;

/**
 * Another Thrift2 gateway of an HBase, for the tests beside this file. Its arguments are settings,
 * NAME=VALUE, and then those of "hbase thrift2", of which the first is start. The gateway copies its
 * configuration before it reads -D.
 */
public class HBaseGateway {
  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    int at = 0;
    for (; !args[at].equals("start"); at++) {
      String[] setting = args[at].split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    System.exit(new ThriftServer(conf).run(Arrays.copyOfRange(args, at, args.length)));
  }
}
