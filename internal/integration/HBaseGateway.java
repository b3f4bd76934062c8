import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.thrift2.ThriftServer;

/**
 * Another Thrift2 gateway of an HBase, for the tests beside this file. Its arguments are settings,
 * NAME=VALUE, and then those of "hbase thrift2", of which the first is start. The gateway copies its
 * configuration before it reads -D. It ends with its input.
 */
public class HBaseGateway {
  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    int at = 0;
    for (; !args[at].equals("start"); at++) {
      String[] setting = args[at].split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    Thread input = new Thread(HBaseGateway::waitForEnd);
    input.setDaemon(true);
    input.start();
    System.exit(new ThriftServer(conf).run(Arrays.copyOfRange(args, at, args.length)));
  }

  private static void waitForEnd() {
    try {
      System.in.transferTo(OutputStream.nullOutputStream());
    } catch (IOException e) {
      System.err.println(e);
    }
    Runtime.getRuntime().halt(0);
  }
}
