import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.file.FileStreamSinkConnector;
import org.apache.kafka.connect.file.FileStreamSinkTask;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.Herder;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorStateInfo;
import org.apache.kafka.connect.runtime.standalone.StandaloneHerder;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.util.FutureCallback;

/**
 * A worker of Kafka Connect, standalone, with a sink connector that counts what it is given, and
 * then drops it, so that no connector can be faster, or appends it to a file, as Kafka's own does.
 *
 * <p>Arguments: bootstrap address, topic, records in it, tasks, directory. Each line of standard
 * input, "CONVERTER SINK" (string or json, drop or file), runs a connector over the whole topic and
 * prints a line of JSON: seconds and CPU seconds of this process between the first records that a
 * sink is given and its return from the last, the records, and the lines of the files.
 */
public final class Sinks {
  /** Set and read by all tasks, which are threads of this process. */
  private static final AtomicLong begun = new AtomicLong();

  private static final AtomicLong left = new AtomicLong();
  private static final AtomicLong given = new AtomicLong();
  private static volatile long ended;
  private static volatile long cpuBegun;
  private static volatile long cpuEnded;

  private static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  private static void begin(Collection<SinkRecord> records) {
    if (!records.isEmpty() && begun.get() == 0 && begun.compareAndSet(0, System.nanoTime())) {
      cpuBegun = cpu();
    }
  }

  /** Counts records that have been converted; another kind of value is a mistake of this program's. */
  private static void end(Collection<SinkRecord> records, boolean json) {
    if (records.isEmpty()) {
      return;
    }
    int converted = 0;
    for (SinkRecord r : records) {
      if (json ? r.value() instanceof Map<?, ?> m && m.get("page") != null : r.value() instanceof String) {
        converted++;
      }
    }
    given.addAndGet(converted);
    if (left.addAndGet(-converted) == 0) {
      ended = System.nanoTime();
      cpuEnded = cpu();
    }
  }

  /** Kafka's connector, which appends records to a file, here one for each task, or drops them. */
  public static final class Counted extends FileStreamSinkConnector {
    private Map<String, String> conf;

    @Override
    public void start(Map<String, String> props) {
      super.start(props);
      conf = props;
    }

    @Override
    public Class<? extends Task> taskClass() {
      return CountedTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int n) {
      List<Map<String, String>> all = new ArrayList<>();
      for (int i = 0; i < n; i++) {
        Map<String, String> one = new HashMap<>(conf);
        one.computeIfPresent(FileStreamSinkConnector.FILE_CONFIG, (k, file) -> file + "." + all.size());
        all.add(one);
      }
      return all;
    }
  }

  /** A task of Counted, which drops its records where it has no file. */
  public static final class CountedTask extends FileStreamSinkTask {
    private boolean json;
    private boolean toFile;

    @Override
    public void start(Map<String, String> props) {
      json = props.get("value.converter").contains("Json");
      toFile = props.containsKey(FileStreamSinkConnector.FILE_CONFIG);
      super.start(props);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
      begin(records);
      if (toFile) {
        super.put(records);
      }
      end(records, json);
    }
  }

  private static void run(StandaloneHerder herder, String topic, long records, String tasks, Path dir, int run, String converter, String sink) throws Exception {
    begun.set(0);
    left.set(records);
    given.set(0);
    ended = 0;
    String name = "run-" + run;
    Map<String, String> conf = new HashMap<>();
    conf.put("name", name);
    conf.put("connector.class", Counted.class.getName());
    conf.put("tasks.max", tasks);
    conf.put("topics", topic);
    conf.put("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
    conf.put("value.converter", converter.equals("json") ? "org.apache.kafka.connect.json.JsonConverter" : "org.apache.kafka.connect.storage.StringConverter");
    if (converter.equals("json")) {
      conf.put("value.converter.schemas.enable", "false");
    }
    Path files = Files.createDirectories(dir.resolve(name));
    if (sink.equals("file")) {
      conf.put(FileStreamSinkConnector.FILE_CONFIG, files.resolve("out").toString());
    }
    FutureCallback<Herder.Created<ConnectorInfo>> put = new FutureCallback<>();
    herder.putConnectorConfig(name, conf, false, put);
    put.get(30, TimeUnit.SECONDS);
    while (ended == 0) {
      Thread.sleep(20);
      for (ConnectorStateInfo.TaskState t : herder.connectorStatus(name).tasks()) {
        if (t.state().equals("FAILED")) {
          throw new IllegalStateException(t.trace());
        }
      }
    }
    FutureCallback<Herder.Created<ConnectorInfo>> gone = new FutureCallback<>();
    herder.deleteConnectorConfig(name, gone);
    gone.get(30, TimeUnit.SECONDS);
    long lines = 0;
    try (var all = Files.list(files)) {
      for (Path p : (Iterable<Path>) all::iterator) {
        try (var in = Files.newBufferedReader(p)) {
          lines += in.lines().count();
        }
        Files.delete(p);
      }
    }
    System.out.printf("{\"seconds\":%f,\"cpu\":%f,\"records\":%d,\"lines\":%d}%n", (ended - begun.get()) / 1e9, (cpuEnded - cpuBegun) / 1e9, given.get(), lines);
    System.out.flush();
  }

  public static void main(String[] args) throws Exception {
    Path dir = Files.createDirectories(Path.of(args[4]));
    Map<String, String> worker = new HashMap<>();
    worker.put("bootstrap.servers", args[0]);
    worker.put("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
    worker.put("value.converter", "org.apache.kafka.connect.storage.StringConverter");
    worker.put("offset.storage.file.filename", dir.resolve("offsets").toString());
    worker.put("listeners", "http://127.0.0.1:0");
    worker.put("plugin.discovery", "only_scan");
    worker.put("consumer.auto.offset.reset", "earliest");
    worker.put("consumer.isolation.level", "read_committed");
    Connect<StandaloneHerder> connect = new ConnectStandalone().startConnect(worker);
    try {
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      int runs = 0;
      for (String line; (line = in.readLine()) != null; ) {
        String[] asked = line.split(" ");
        run(connect.herder(), args[1], Long.parseLong(args[2]), args[3], dir, runs++, asked[0], asked[1]);
        System.gc();
      }
    } finally {
      connect.stop();
      connect.awaitStop();
    }
  }

  private Sinks() {}
}
