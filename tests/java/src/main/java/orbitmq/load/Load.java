package orbitmq.load;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.common.message.Message;
import orbitmq.drivers.Arguments;
import orbitmq.drivers.Rows;

/**
 * The load generator of the benchmark: {@code Load <work> --namesrv --topic --broker-pid --seconds --warm-up ...} puts
 * one kind of work on a broker and prints one row with rate, times and the broker's processor time a message; without
 * --broker-pid it is its own.
 * Messages have a body of --body bytes, a tag and a key, as an order event would.
 */
public final class Load {
    final String namesrv;
    final String topic;
    final long warmUpMs;
    final long windowMs;
    final Meter meter;
    private final byte[] body;

    private Load(Arguments arguments) {
        namesrv = arguments.text("namesrv");
        topic = arguments.text("topic");
        warmUpMs = arguments.number("warm-up", 3) * 1000L;
        windowMs = arguments.number("seconds", 8) * 1000L;
        meter = new Meter(arguments.number("broker-pid", (int) ProcessHandle.current().pid()));
        body = new byte[arguments.number("body", 1024)];
        ThreadLocalRandom.current().nextBytes(body);
    }

    public static void main(String[] words) {
        int exitCode = 1;
        try {
            run(words);
            exitCode = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        System.exit(exitCode); // client libraries leave threads behind that are no daemons
    }

    private static void run(String[] words) throws Exception {
        Arguments arguments = new Arguments(Arrays.copyOfRange(words, 1, words.length));
        Load load = new Load(arguments);
        Map<String, Object> row = switch (words[0]) {
            case "sync", "async", "oneway", "batch", "transaction", "delay", "fill" -> new Sending(load, arguments).run(words[0]);
            case "pull" -> new Reading(load, arguments).pull();
            case "push" -> new Reading(load, arguments).push(false);
            case "orderly" -> new Reading(load, arguments).push(true);
            case "poll" -> new Reading(load, arguments).poll();
            case "query" -> new Querying(load, arguments).run();
            case "latency" -> new Latency(load, arguments).run();
            default -> throw new IllegalArgumentException("unknown work " + words[0]);
        };
        Rows.print(row);
    }

    static String key(long number) {
        return "order-" + number;
    }

    Message message(long number) {
        Message message = new Message(topic, "TagA", key(number), body);
        message.setWaitStoreMsgOK(true);
        return message;
    }
}
