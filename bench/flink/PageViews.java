import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * What examples/pageviews.yaml says, as a Flink job with exactly-once checkpoints to
 * a local directory: counts of each page by minute, hour and day in keyed state and,
 * where asked for, the rows of each user in keyed state, too.
 *
 * <p>Arguments: bootstrap address, topic, records in it, directory. Each line of
 * standard input, "BACKEND WHAT" (hashmap or rocksdb, counts or rows), runs the job
 * over the whole topic and prints a line of JSON: seconds and CPU seconds of this
 * process between the first record that is read and the last that is in the state,
 * the sums of the counts, and the rows.
 */
public final class PageViews {
  /** Set and read by all tasks, which are threads of this process. */
  private static final AtomicLong begun = new AtomicLong();

  private static final AtomicLong left = new AtomicLong();
  private static volatile long ended;
  private static volatile long cpuBegun;
  private static volatile long cpuEnded;
  private static final LongAdder[] sums = {new LongAdder(), new LongAdder(), new LongAdder()};
  private static final LongAdder rows = new LongAdder();
  private static final LongAdder counters = new LongAdder();

  private static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private static void applied() {
    if (left.decrementAndGet() == 0) {
      ended = System.nanoTime();
      cpuEnded = cpu();
    }
  }

  /** The payload, with the offsets that make a row's key unique. */
  static final class Payload implements KafkaRecordDeserializationSchema<Tuple3<Integer, Long, byte[]>> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> r, Collector<Tuple3<Integer, Long, byte[]>> out) {
      if (begun.get() == 0 && begun.compareAndSet(0, System.nanoTime())) {
        cpuBegun = cpu();
      }
      out.collect(Tuple3.of(r.partition(), r.offset(), r.value()));
    }

    @Override
    public TypeInformation<Tuple3<Integer, Long, byte[]>> getProducedType() {
      return TypeInformation.of(new TypeHint<>() {});
    }
  }

  /** Decodes payloads into pages and times, for the counts. */
  static final class Decode extends RichFlatMapFunction<Tuple3<Integer, Long, byte[]>, Tuple2<String, Long>> {
    private transient JsonFactory json;

    @Override
    public void open(OpenContext c) {
      json = new JsonFactory();
    }

    @Override
    public void flatMap(Tuple3<Integer, Long, byte[]> r, Collector<Tuple2<String, Long>> out) throws Exception {
      long time = -1;
      String page = null;
      try (JsonParser p = json.createParser(r.f2)) {
        p.nextToken();
        while (p.nextToken() != JsonToken.END_OBJECT) {
          String name = p.currentName();
          p.nextToken();
          if (name.equals("ts")) {
            time = p.getLongValue();
          } else if (name.equals("page")) {
            page = p.getText();
          }
        }
      }
      out.collect(Tuple2.of(page, time));
    }
  }

  /** Decodes payloads into what Decode does and, for ROWS, users, keys and columns. */
  static final class DecodeRow extends ProcessFunction<Tuple3<Integer, Long, byte[]>, Tuple2<String, Long>> {
    static final OutputTag<Tuple3<String, Tuple3<Long, Integer, Long>, byte[]>> ROWS = new OutputTag<>("rows") {};
    private static final String[] COLUMNS = {"user", "page", "country", "referrer", "agent", "duration_ms"};
    private transient JsonFactory json;
    private transient ByteArrayOutputStream bytes;

    @Override
    public void open(OpenContext c) {
      json = new JsonFactory();
      bytes = new ByteArrayOutputStream();
    }

    @Override
    public void processElement(Tuple3<Integer, Long, byte[]> r, Context c, Collector<Tuple2<String, Long>> out) throws Exception {
      long time = -1;
      String[] values = new String[COLUMNS.length];
      try (JsonParser p = json.createParser(r.f2)) {
        p.nextToken();
        while (p.nextToken() != JsonToken.END_OBJECT) {
          String name = p.currentName();
          p.nextToken();
          if (name.equals("ts")) {
            time = p.getLongValue();
            continue;
          }
          for (int i = 0; i < COLUMNS.length; i++) {
            if (name.equals(COLUMNS[i])) {
              values[i] = p.getText();
            }
          }
        }
      }
      bytes.reset();
      for (String v : values) {
        byte[] b = v == null ? new byte[0] : v.getBytes(StandardCharsets.UTF_8);
        bytes.write(b.length >> 8);
        bytes.write(b.length);
        bytes.write(b, 0, b.length);
      }
      c.output(ROWS, Tuple3.of(values[0], Tuple3.of(Long.MAX_VALUE - time, r.f0, r.f1), bytes.toByteArray()));
      out.collect(Tuple2.of(values[1], time));
    }
  }

  /** Keeps the counts of a page, by bucket: minute, hour and day. */
  static final class Count extends KeyedProcessFunction<String, Tuple2<String, Long>, Void> {
    private static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("yyyyMMddHHmm").withZone(ZoneOffset.UTC);
    private transient MapState<String, Long> counts;
    private transient ValueState<Boolean> seen;
    private transient Map<Long, String> names; // of minutes

    @Override
    public void open(OpenContext c) {
      counts = getRuntimeContext().getMapState(new MapStateDescriptor<>("counts", Types.STRING, Types.LONG));
      seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.BOOLEAN));
      names = new HashMap<>();
    }

    @Override
    public void processElement(Tuple2<String, Long> e, Context c, Collector<Void> out) throws Exception {
      String minute = names.computeIfAbsent(e.f1 / 60_000, m -> MINUTE.format(Instant.ofEpochMilli(m * 60_000)));
      boolean known = add(minute);
      known &= add(minute.substring(0, 10));
      known &= add(minute.substring(0, 8));
      if (!known && seen.value() == null) { // read at the end, when nothing is measured
        seen.update(true);
        c.timerService().registerEventTimeTimer(Long.MAX_VALUE);
      }
      applied();
    }

    private boolean add(String bucket) throws Exception {
      Long n = counts.get(bucket);
      counts.put(bucket, n == null ? 1 : n + 1);
      return n != null;
    }

    @Override
    public void onTimer(long time, OnTimerContext c, Collector<Void> out) throws Exception {
      for (Map.Entry<String, Long> e : counts.entries()) {
        sums[e.getKey().length() == 12 ? 0 : e.getKey().length() == 10 ? 1 : 2].add(e.getValue());
        counters.increment();
      }
    }
  }

  /** Keeps the rows of a user, the newest first, as the row keys of the example do. */
  static final class Store extends KeyedProcessFunction<String, Tuple3<String, Tuple3<Long, Integer, Long>, byte[]>, Void> {
    private transient MapState<Tuple3<Long, Integer, Long>, byte[]> kept;
    private transient ValueState<Boolean> seen;

    @Override
    public void open(OpenContext c) {
      kept =
          getRuntimeContext()
              .getMapState(
                  new MapStateDescriptor<>("rows", Types.TUPLE(Types.LONG, Types.INT, Types.LONG), PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
      seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.BOOLEAN));
    }

    @Override
    public void processElement(Tuple3<String, Tuple3<Long, Integer, Long>, byte[]> e, Context c, Collector<Void> out) throws Exception {
      kept.put(Tuple3.of(e.f1.f0, e.f1.f1, e.f1.f2), e.f2); // a copy: the record's objects are used again
      if (seen.value() == null) {
        seen.update(true);
        c.timerService().registerEventTimeTimer(Long.MAX_VALUE);
      }
      applied();
    }

    @Override
    public void onTimer(long time, OnTimerContext c, Collector<Void> out) throws Exception {
      for (byte[] row : kept.values()) {
        rows.add(row.length > 0 ? 1 : 0);
      }
    }
  }

  private static void run(String bootstrap, String topic, long records, Path dir, String backend, boolean withRows) throws Exception {
    begun.set(0);
    left.set(withRows ? 2 * records : records);
    ended = 0;
    rows.reset();
    counters.reset();
    for (LongAdder s : sums) {
      s.reset();
    }
    Configuration conf = new Configuration();
    conf.setString("state.backend.type", backend);
    conf.setString("execution.checkpointing.incremental", "true");
    conf.setString("execution.checkpointing.storage", "filesystem");
    conf.setString("execution.checkpointing.dir", dir.resolve("checkpoints").toUri().toString());
    conf.setString("execution.checkpointing.interval", "1 s");
    conf.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    conf.setString("state.backend.rocksdb.localdir", dir.resolve("rocksdb").toString());
    conf.setString("taskmanager.memory.managed.size", "2g");
    conf.setString("taskmanager.memory.network.max", "256m");
    conf.setString("taskmanager.memory.network.min", "256m");
    conf.setString("pipeline.object-reuse", "true");
    conf.setString("pipeline.generic-types", "false");
    conf.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Runtime.getRuntime().availableProcessors(), conf);
    KafkaSource<Tuple3<Integer, Long, byte[]>> source =
        KafkaSource.<Tuple3<Integer, Long, byte[]>>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(topic)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setDeserializer(new Payload())
            .setProperty("isolation.level", "read_committed")
            .setProperty("commit.offsets.on.checkpoint", "false")
            .setProperty("register.consumer.metrics", "false")
            .build();
    DataStream<Tuple3<Integer, Long, byte[]>> events = env.fromSource(source, WatermarkStrategy.noWatermarks(), "kafka");
    SingleOutputStreamOperator<Tuple2<String, Long>> views;
    if (withRows) {
      views = events.process(new DecodeRow());
      views.getSideOutput(DecodeRow.ROWS).keyBy(r -> r.f0).process(new Store());
    } else {
      views = events.flatMap(new Decode());
    }
    views.keyBy(v -> v.f0).process(new Count());
    env.execute("pageviews");
    if (left.get() != 0) {
      throw new IllegalStateException("WRONG: " + left.get() + " of the records were not applied");
    }
    System.out.printf(
        "{\"seconds\":%f,\"cpu\":%f,\"minute\":%d,\"hour\":%d,\"day\":%d,\"counters\":%d,\"rows\":%d}%n",
        (ended - begun.get()) / 1e9, (cpuEnded - cpuBegun) / 1e9, sums[0].sum(), sums[1].sum(), sums[2].sum(), counters.sum(), rows.sum());
    System.out.flush();
  }

  public static void main(String[] args) throws Exception {
    Path dir = Path.of(args[3]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    int runs = 0;
    for (String line; (line = in.readLine()) != null; ) {
      String[] asked = line.split(" ");
      // A directory for each: Flink removes its checkpoints when the job has ended.
      run(args[0], args[1], Long.parseLong(args[2]), dir.resolve(Integer.toString(runs++)), asked[0], asked[1].equals("rows"));
      System.gc();
    }
  }

  private PageViews() {}
}
