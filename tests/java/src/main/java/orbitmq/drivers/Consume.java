package orbitmq.drivers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Push consumers of one group: --namesrv, --topic, --group, --expression or --sql, --model CLUSTERING|BROADCASTING, --orderly,
 * --instances (consumers in this process), --expect (deliveries to wait for), --idle-ms (give up after that long
 * without a delivery), --linger-ms (stay that long after the expected ones, so that surplus ones show), --fail-every k
 * (the first delivery of every k-th index is failed), --fail-below n (deliveries are failed until n retries were made),
 * --max-reconsume (retries before a message is dead), --from FIRST|LAST, --trace true, --instance (the name of each
 * instance, before its number), --namespace, --offsets (the directory of a broadcasting consumer's offsets),
 * --assigned true (the broker assigns queues, 5.x), --invisible-ms (of messages that are delivered, 5.x).
 * Rows: event assigned whenever the queues of a consumer change, event message for each delivery, event end.
 */
final class Consume {
    private static final long SHUTDOWN_MS = 10_000; // a delivery in flight ends before the driver does

    private final Arguments arguments;
    private final String topic;
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Map<Integer, String> assignments = new ConcurrentHashMap<>();
    private final AtomicInteger delivered = new AtomicInteger();
    private final AtomicLong lastDelivery = new AtomicLong(System.currentTimeMillis());
    private final int failEvery;
    private final int failBelow;

    private Consume(Arguments arguments) {
        this.arguments = arguments;
        topic = arguments.text("topic");
        failEvery = arguments.number("fail-every", 0);
        failBelow = arguments.number("fail-below", 0);
    }

    static void run(Arguments arguments) throws Exception {
        if (arguments.has("offsets")) {
            System.setProperty("rocketmq.client.localOffsetStoreDir", arguments.text("offsets"));
        }
        Consume consume = new Consume(arguments);
        for (int i = 0; i < arguments.number("instances", 1); i++) {
            consume.start(i);
        }
        Rows.event("started");
        consume.awaitEnd();
        Rows.event("end", "count", consume.delivered.get());
        consume.consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    private void start(int number) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(arguments.text("group"), arguments.hook(), new AllocateMessageQueueAveragely(),
                arguments.is("trace"), null);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        if (arguments.has("namespace")) {
            consumer.setNamespace(arguments.text("namespace"));
        }
        consumer.setInstanceName(arguments.text("instance", ProcessHandle.current().pid() + "-") + number);
        String from = "CONSUME_FROM_" + arguments.text("from", "FIRST") + "_OFFSET";
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(from));
        consumer.setConsumeMessageBatchMaxSize(arguments.number("batch", 1));
        consumer.setMaxReconsumeTimes(arguments.number("max-reconsume", -1));
        setModel(consumer, arguments.text("model", "CLUSTERING"));
        if (arguments.is("assigned")) {
            set(consumer, "setClientRebalance", boolean.class, false);
            set(consumer, "setPopInvisibleTime", long.class, (long) arguments.number("invisible-ms", 60_000));
        }
        consumer.setAwaitTerminationMillisWhenShutdown(SHUTDOWN_MS);
        consumer.subscribe(topic, Messages.selector(arguments));
        listen(consumer, number);
        consumer.start();
        consumers.add(consumer);
    }

    /** The enumeration lives in another package in 5.x, and these classes are compiled once for both. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setModel(DefaultMQPushConsumer consumer, String name) throws Exception {
        Class type = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", type).invoke(consumer, Enum.valueOf(type, name));
    }

    /** Properties that 4.9 does not have. */
    private static void set(DefaultMQPushConsumer consumer, String name, Class<?> type, Object value) throws Exception {
        DefaultMQPushConsumer.class.getMethod(name, type).invoke(consumer, value);
    }

    private void listen(DefaultMQPushConsumer consumer, int number) {
        if (arguments.is("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                deliver(number, messages)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                deliver(number, messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
    }

    private boolean deliver(int number, List<MessageExt> messages) {
        boolean success = true;
        for (MessageExt message : messages) {
            boolean fails = failEvery > 0 && message.getReconsumeTimes() == 0
                && Integer.parseInt(message.getUserProperty("index")) % failEvery == 0
                || message.getReconsumeTimes() < failBelow;
            success &= !fails;
            Map<String, Object> row = Rows.row("event", "message", "consumer", number, "failed", fails);
            row.putAll(Messages.row(message));
            Rows.print(row);
        }
        lastDelivery.set(System.currentTimeMillis());
        delivered.addAndGet(messages.size());
        return success;
    }

    private void awaitEnd() throws InterruptedException {
        int expected = arguments.number("expect", Integer.MAX_VALUE);
        long idleMs = arguments.number("idle-ms", 60_000);
        long lingerMs = arguments.number("linger-ms", 300);
        while (true) {
            printAssignments();
            long quietMs = System.currentTimeMillis() - lastDelivery.get();
            if (quietMs > (delivered.get() >= expected ? lingerMs : idleMs)) {
                return;
            }
            Thread.sleep(20);
        }
    }

    private void printAssignments() {
        for (int i = 0; i < consumers.size(); i++) {
            TreeSet<Integer> queues = new TreeSet<>();
            for (MessageQueue queue : consumers.get(i).getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(topic)) {
                    queues.add(queue.getQueueId());
                }
            }
            if (!queues.toString().equals(assignments.put(i, queues.toString())) && !queues.isEmpty()) {
                Rows.event("assigned", "consumer", i, "queues", queues);
            }
        }
    }
}
