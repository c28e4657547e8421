import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson against a server that scripts/with-server started. Its values in strings work, with the scripts that it sends for
 * them. Its locks, which it keeps in hashes, fail with an error that says so, and leave nothing.
 */
public final class RedissonTest {
  private static final String NOT_OFFERED = "is not offered by Tidemark";

  private final RedissonClient client;

  private RedissonTest(RedissonClient client) {
    this.client = client;
  }

  /** Runs the command line; what it prints. */
  private static String tidemark(String... arguments) throws IOException, InterruptedException {
    String[] command = new String[arguments.length + 2];
    command[0] = System.getenv("TEST_TIDEMARK");
    command[1] = "--json";
    System.arraycopy(arguments, 0, command, 2, arguments.length);
    Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    check(0, process.waitFor());
    return out;
  }

  private static void check(Object expected, Object found) {
    if (!Objects.equals(expected, found)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }

  /** Whether a call fails because the server lacks this command. */
  private static void lacks(String command, Callable<?> call) throws Exception {
    try {
      throw new AssertionError("it answered " + call.call());
    } catch (RedisException error) {
      String text = String.valueOf(error.getMessage());
      if (!text.contains("'" + command + "' " + NOT_OFFERED)) {
        throw new AssertionError(text);
      }
    }
  }

  private void buckets() {
    RBucket<String> bucket = client.getBucket("bucket", StringCodec.INSTANCE);
    check(null, bucket.get());
    bucket.set("a", java.time.Duration.ofSeconds(60));
    check("a", bucket.get());
    check(true, bucket.remainTimeToLive() > 0);
    check(false, bucket.setIfAbsent("b"));
    check("a", bucket.getAndSet("b"));
    check(true, bucket.delete());
    check(false, bucket.isExists());
  }

  private void compareAndSet() {
    RBucket<String> bucket = client.getBucket("compared", StringCodec.INSTANCE);
    check(true, bucket.compareAndSet(null, "a"));
    check(false, bucket.compareAndSet("x", "b"));
    check(true, bucket.compareAndSet("a", "b"));
    check("b", bucket.get());
  }

  private void counters() {
    RAtomicLong counter = client.getAtomicLong("counter");
    check(1L, counter.incrementAndGet());
    check(true, counter.compareAndSet(1, 10));
    check(false, counter.compareAndSet(1, 20));
    check(15L, counter.addAndGet(5));
    check(15L, counter.get());
  }

  private void scripts() {
    RScript script = client.getScript(StringCodec.INSTANCE);
    String text = "return redis.call('incrby', KEYS[1], ARGV[1])";
    String name = script.scriptLoad(text);
    Object found =
        script.evalSha(RScript.Mode.READ_WRITE, name, RScript.ReturnType.INTEGER, java.util.List.of("n"), "7");
    check(7L, found);
  }

  private void locks() throws Exception {
    RLock lock = client.getLock("lock");
    lacks("hincrby", () -> lock.tryLock(0, 10, TimeUnit.SECONDS));
    lacks("hexists", () -> {
      lock.unlock();
      return null;
    });
    check(false, lock.isLocked());
    check(false, lock.forceUnlock());
    check(0L, client.getKeys().countExists("lock"));
  }

  private interface Test {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    String tenant = "java-" + ProcessHandle.current().pid();
    Matcher secret = Pattern.compile("\"secret\":\\s*\"([^\"]+)\"").matcher(tidemark("tenant", "create", tenant, "--cap", "32MiB"));
    check(true, secret.find());
    Config config = new Config();
    config.setThreads(2).setNettyThreads(2);
    config
        .useSingleServer()
        .setAddress("redis://" + System.getenv("TEST_REDIS"))
        .setUsername(tenant)
        .setPassword(secret.group(1))
        .setRetryAttempts(0)
        .setConnectionMinimumIdleSize(1)
        .setConnectionPoolSize(4)
        .setSubscriptionConnectionMinimumIdleSize(0);
    RedissonClient client = Redisson.create(config);
    RedissonTest tests = new RedissonTest(client);
    Map<String, Test> all = new LinkedHashMap<>();
    all.put("buckets", tests::buckets);
    all.put("compare and set is a script", tests::compareAndSet);
    all.put("counters", tests::counters);
    all.put("scripts by their names", tests::scripts);
    all.put("locks need hashes and say so", tests::locks);
    int failed = 0;
    for (Map.Entry<String, Test> test : all.entrySet()) {
      try {
        test.getValue().run();
        System.out.println("ok - " + test.getKey());
      } catch (Exception | AssertionError error) {
        failed += 1;
        System.out.println("not ok - " + test.getKey() + ": " + error);
      }
    }
    client.shutdown();
    tidemark("tenant", "remove", tenant, "--yes");
    System.exit(failed == 0 ? 0 : 1);
  }
}
