package orbitmq.drivers;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store library on store directories. --jobs is a file with a JSON object a line: root, config (keys of a
 * broker's properties file), keys ([topic, key] to be looked up), queues ([topic, queue id]), append (how many messages
 * go to these queues in turn) and leave (do not shut the store down, as if the process were killed).
 *
 * <p>Rows: "opened"; "queue" with [queue offset, physical offset, size, SHA-256] of each message; "found" for a key;
 * and, once messages were appended, "queue" for each queue again with what is new.
 */
final class Stores {
    private static final int AT_ONCE = 4; // a store waits for its own threads most of the time it opens and closes
    private static final int BATCH = 20;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final int number;
    private final JSONObject job;
    private final DefaultMessageStore store;
    private final Map<String, Long> read = new TreeMap<>();

    private Stores(int number, JSONObject job) throws Exception {
        this.number = number;
        this.job = job;
        Properties config = new Properties();
        job.getJSONObject("config").forEach((name, value) -> config.setProperty(name, String.valueOf(value)));
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        MixAll.properties2Object(config, storeConfig);
        storeConfig.setStorePathRootDir(job.getString("root"));
        storeConfig.setHaListenPort(0);
        store = new DefaultMessageStore(
            storeConfig, new BrokerStatsManager("stores", true), (t, q, o, c, s, b, p) -> { }, new BrokerConfig()) {
            @Override
            public void handleScheduleMessageService(BrokerRole role) {
                // Delayed messages that are due long since would be delivered, and the log would not be what it was.
            }
        };
    }

    static void run(Arguments arguments) throws Exception {
        ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<?>> running = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments.text("jobs")))) {
            Stores job = new Stores(running.size(), JSON.parseObject(line));
            running.add(workers.submit(() -> {
                job.work();
                return null;
            }));
        }
        for (Future<?> job : running) {
            job.get();
        }
    }

    private void work() throws Exception {
        if (!store.load()) {
            throw new IllegalStateException("cannot load " + job.getString("root"));
        }
        store.start();
        Rows.event("opened", "job", number, "min", store.getMinPhyOffset(), "max", store.getMaxPhyOffset());
        printQueues();
        printKeys();
        int count = job.getIntValue("append");
        if (count > 0) {
            append(count);
            waitForDispatch();
            printQueues();
        }
        if (!job.getBooleanValue("leave")) {
            store.shutdown();
        }
    }

    private void printQueues() throws Exception {
        for (String topic : new TreeMap<>(store.getConsumeQueueTable()).keySet()) {
            for (int queueId : new TreeMap<>(store.getConsumeQueueTable().get(topic)).keySet()) {
                printQueue(topic, queueId);
            }
        }
    }

    private void printQueue(String topic, int queueId) throws Exception {
        long min = store.getMinOffsetInQueue(topic, queueId);
        long max = store.getMaxOffsetInQueue(topic, queueId);
        long next = read.getOrDefault(topic + "-" + queueId, min);
        List<List<Object>> messages = new ArrayList<>();
        while (next < max) {
            GetMessageResult result = store.getMessage("readers", topic, queueId, next, 32, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                throw new IllegalStateException(job.getString("root") + " " + topic + "-" + queueId + " at " + next
                    + ": " + result.getStatus());
            }
            for (ByteBuffer unit : result.getMessageBufferList()) {
                messages.add(described(unit.slice()));
            }
            result.release();
            next = result.getNextBeginOffset();
        }
        read.put(topic + "-" + queueId, max);
        Rows.event("queue", "job", number, "topic", topic, "queueId", queueId, "min", min, "max", max,
            "messages", messages);
    }

    private static List<Object> described(ByteBuffer unit) throws Exception {
        byte[] bytes = new byte[unit.remaining()];
        unit.duplicate().get(bytes);
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes);
        return List.of(unit.getLong(20), unit.getLong(28), bytes.length, HexFormat.of().formatHex(hash));
    }

    private void printKeys() {
        JSONArray keys = job.getJSONArray("keys");
        for (int i = 0; keys != null && i < keys.size(); i++) {
            String topic = keys.getJSONArray(i).getString(0);
            String key = keys.getJSONArray(i).getString(1);
            List<Long> offsets = new ArrayList<>();
            QueryMessageResult result = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
            for (ByteBuffer unit : result.getMessageBufferList()) {
                offsets.add(unit.slice().getLong(28));
            }
            result.release();
            Rows.event("found", "job", number, "topic", topic, "key", key, "offsets", offsets);
        }
    }

    private void waitForDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private void append(int count) throws InterruptedException {
        JSONArray queues = job.getJSONArray("queues");
        for (int i = 0; i < count; ) {
            JSONArray queue = queues.getJSONArray(i % queues.size());
            // One message after the other, and a batch as the last of each hundred.
            int size = i % 100 == 100 - BATCH ? Math.min(BATCH, count - i) : 1;
            PutMessageResult result = size == 1
                ? store.putMessage(single(queue.getString(0), queue.getIntValue(1), i))
                : store.putMessages(batch(queue.getString(0), queue.getIntValue(1), i, size));
            if (!result.isOk()) {
                throw new IllegalStateException(job.getString("root") + ": " + result.getPutMessageStatus());
            }
            i += size;
            if (i % 100 == 0) {
                // RocketMQ names an index file after the millisecond it is made in. Two small files made in the same
                // one would share a file, and the messages of the first would lose their entries.
                waitForDispatch();
                Thread.sleep(2);
            }
        }
    }

    private static MessageExtBrokerInner single(String topic, int queueId, int index) {
        Message message = Messages.create(topic, "java", index);
        MessageExtBrokerInner stored = new MessageExtBrokerInner();
        shared(stored, topic, queueId);
        stored.setBody(message.getBody());
        stored.setFlag(message.getFlag());
        stored.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
        stored.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return stored;
    }

    private static MessageExtBatch batch(String topic, int queueId, int first, int size) {
        List<Message> messages = new ArrayList<>();
        for (int index = first; index < first + size; index++) {
            messages.add(Messages.create(topic, "java", index));
        }
        MessageExtBatch stored = new MessageExtBatch();
        shared(stored, topic, queueId);
        stored.setBody(MessageDecoder.encodeMessages(messages));
        return stored;
    }

    private static void shared(MessageExt stored, String topic, int queueId) {
        stored.setTopic(topic);
        stored.setQueueId(queueId);
        stored.setBornTimestamp(System.currentTimeMillis());
        stored.setBornHost(HOST);
        stored.setStoreHost(HOST);
    }
}
