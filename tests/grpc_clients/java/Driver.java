import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client as a test driver; README.md of the directory above describes the commands. */
final class Driver {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(10);
    private static final int WAIT_S = 20;
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> received = new ConcurrentHashMap<>();
    private final AtomicInteger refs = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject asked = GSON.fromJson(line, JsonObject.class);
            pool.execute(() -> driver.obey(asked));
        }
        Runtime.getRuntime().halt(0); // clients that were not stopped would keep it
    }

    private void obey(JsonObject asked) {
        int id = asked.get("id").getAsInt();
        try {
            show(row("id", id, "result", answer(asked)));
        } catch (Throwable failure) {
            Throwable error = failure instanceof CompletionException ? failure.getCause() : failure;
            Matcher code = CODE.matcher(String.valueOf(error.getMessage()));
            show(row("id", id, "error", row(
                "kind", error.getClass().getSimpleName(), "code", code.find() ? Integer.valueOf(code.group(1)) : null,
                "message", String.valueOf(error.getMessage()))));
        }
    }

    private Object answer(JsonObject asked) throws Exception {
        String name = asked.get("name").getAsString();
        switch (asked.get("do").getAsString()) {
            case "start_producer" -> clients.put(name, producer(name, asked));
            case "start_simple_consumer" -> clients.put(name, simpleConsumer(asked));
            case "start_push_consumer" -> clients.put(name, pushConsumer(name, asked));
            case "send" -> {
                SendReceipt receipt = producer(name).send(outgoing(asked.getAsJsonObject("message")));
                return row("id", receipt.getMessageId().toString(), "recall_handle", receipt.getRecallHandle());
            }
            case "send_in_transaction" -> {
                return sendInTransaction(producer(name), asked);
            }
            case "recall" -> {
                String topic = asked.get("topic").getAsString();
                String handle = asked.get("recall_handle").getAsString();
                return row("id", producer(name).recallMessage(topic, handle).getMessageId().toString());
            }
            case "receive" -> {
                return receive(simpleConsumer(name), asked.get("most").getAsInt(), invisible(asked));
            }
            case "ack" -> simpleConsumer(name).ack(received.get(asked.get("ref").getAsInt()));
            case "change_invisible_duration" -> simpleConsumer(name)
                .changeInvisibleDuration(received.get(asked.get("ref").getAsInt()), invisible(asked));
            case "load" -> {
                return load(producer(name), asked);
            }
            case "drain" -> {
                return drain(simpleConsumer(name), asked);
            }
            case "stop" -> clients.remove(name).close();
            default -> throw new IllegalArgumentException("no such command");
        }
        return null;
    }

    private Producer producer(String name, JsonObject asked) throws Exception {
        JsonObject decisions = object(asked, "decisions");
        return PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration(asked))
            .setTopics(strings(asked, "topics"))
            .setTransactionChecker(message -> {
                JsonElement told = decisions.get(text(message.getBody()));
                String decision = told == null ? "UNKNOWN" : told.getAsString();
                show(row("event", "checked", "name", name, "message", incoming(message), "decision", decision));
                return TransactionResolution.valueOf(decision);
            })
            .build();
    }

    private Closeable simpleConsumer(JsonObject asked) throws Exception {
        int waitS = asked.has("wait_s") ? asked.get("wait_s").getAsInt() : WAIT_S;
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(asked.get("group").getAsString())
            .setSubscriptionExpressions(filters(asked))
            .setAwaitDuration(Duration.ofSeconds(waitS))
            .build();
    }

    private Closeable pushConsumer(String name, JsonObject asked) throws Exception {
        Map<String, Integer> failures = new ConcurrentHashMap<>();
        object(asked, "failures").entrySet().forEach(one -> failures.put(one.getKey(), one.getValue().getAsInt()));
        MessageListener listener = message -> {
            int left = failures.merge(text(message.getBody()), -1, Integer::sum) + 1;
            ConsumeResult result = left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            show(row("event", "delivered", "name", name, "message", incoming(message), "result", result.toString()));
            return result;
        };
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(asked.get("group").getAsString())
            .setSubscriptionExpressions(filters(asked))
            .setMessageListener(listener)
            .build();
    }

    private Object sendInTransaction(Producer producer, JsonObject asked) throws Exception {
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(outgoing(asked.getAsJsonObject("message")), transaction);
        switch (asked.has("then") ? asked.get("then").getAsString() : "") {
            case "commit" -> transaction.commit();
            case "rollback" -> transaction.rollback();
            default -> { }
        }
        return row("id", receipt.getMessageId().toString());
    }

    /** Sends one message after another in each of some threads, and counts. */
    private Object load(Producer producer, JsonObject asked) throws Exception {
        byte[] body = new byte[asked.get("size").getAsInt()];
        String topic = asked.get("topic").getAsString();
        return counted(asked, () -> {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build());
            return 1;
        });
    }

    /** Receives and acknowledges what there is in each of some threads, and counts. */
    private Object drain(SimpleConsumer consumer, JsonObject asked) throws Exception {
        return counted(asked, () -> {
            List<MessageView> found = consumer.receive(32, Duration.ofSeconds(60));
            for (MessageView message : found) {
                consumer.ack(message);
            }
            return found.size();
        });
    }

    private static Object counted(JsonObject asked, Callable<Integer> work) throws Exception {
        int threads = asked.get("threads").getAsInt();
        long begun = System.nanoTime();
        long end = begun + asked.get("seconds").getAsLong() * 1_000_000_000L;
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Long>> counts = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            counts.add(pool.submit(() -> {
                long count = 0;
                while (System.nanoTime() < end) {
                    count += work.call();
                }
                return count;
            }));
        }
        long sum = 0;
        for (Future<Long> count : counts) {
            sum += count.get();
        }
        pool.shutdown();
        return row("messages", sum, "seconds", (System.nanoTime() - begun) / 1e9);
    }

    private List<Object> receive(SimpleConsumer consumer, int most, Duration invisible) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (MessageView message : consumer.receive(most, invisible)) {
            int ref = refs.getAndIncrement();
            received.put(ref, message);
            Map<String, Object> row = incoming(message);
            row.put("ref", ref);
            rows.add(row);
        }
        return rows;
    }

    private Producer producer(String name) {
        return (Producer) clients.get(name);
    }

    private SimpleConsumer simpleConsumer(String name) {
        return (SimpleConsumer) clients.get(name);
    }

    private static ClientConfiguration configuration(JsonObject asked) {
        return ClientConfiguration.newBuilder()
            .setEndpoints(asked.get("endpoints").getAsString())
            .enableSsl(asked.has("tls") && asked.get("tls").getAsBoolean())
            .setRequestTimeout(REQUEST_TIMEOUT)
            .build();
    }

    private static Map<String, FilterExpression> filters(JsonObject asked) {
        Map<String, FilterExpression> filters = new HashMap<>();
        for (Map.Entry<String, JsonElement> one : asked.getAsJsonObject("subscriptions").entrySet()) {
            JsonObject filter = one.getValue().getAsJsonObject();
            String type = filter.get("type").getAsString();
            filters.put(one.getKey(), new FilterExpression(filter.get("expression").getAsString(),
                type.equals("SQL") ? FilterExpressionType.SQL92 : FilterExpressionType.valueOf(type)));
        }
        return filters;
    }

    private static Duration invisible(JsonObject asked) {
        return Duration.ofSeconds(asked.get("invisible_s").getAsLong());
    }

    private static Message outgoing(JsonObject fields) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(fields.get("topic").getAsString())
            .setBody(Base64.getDecoder().decode(fields.get("body").getAsString()));
        if (fields.has("tag")) {
            builder.setTag(fields.get("tag").getAsString());
        }
        if (fields.has("keys")) {
            builder.setKeys(strings(fields, "keys"));
        }
        object(fields, "properties").entrySet()
            .forEach(one -> builder.addProperty(one.getKey(), one.getValue().getAsString()));
        if (fields.has("group")) {
            builder.setMessageGroup(fields.get("group").getAsString());
        }
        if (fields.has("deliver_at_ms")) {
            builder.setDeliveryTimestamp(fields.get("deliver_at_ms").getAsLong());
        }
        return builder.build();
    }

    private static Map<String, Object> incoming(MessageView message) {
        return row(
            "topic", message.getTopic(), "body", Base64.getEncoder().encodeToString(bytes(message.getBody())),
            "tag", message.getTag().orElse(null), "keys", new TreeSet<>(message.getKeys()),
            "properties", message.getProperties(), "group", message.getMessageGroup().orElse(null),
            "deliver_at_ms", message.getDeliveryTimestamp().orElse(null),
            "id", message.getMessageId().toString(), "attempt", message.getDeliveryAttempt());
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static String text(ByteBuffer buffer) {
        return new String(bytes(buffer), StandardCharsets.UTF_8);
    }

    private static JsonObject object(JsonObject fields, String name) {
        return fields.has(name) ? fields.getAsJsonObject(name) : new JsonObject();
    }

    private static String[] strings(JsonObject fields, String name) {
        return fields.has(name) ? GSON.fromJson(fields.get(name), String[].class) : new String[0];
    }

    private static Map<String, Object> row(Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            row.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return row;
    }

    private static synchronized void show(Map<String, Object> row) {
        System.out.println(GSON.toJson(row));
    }
}
