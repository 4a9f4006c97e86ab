package orbitmq.drivers;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A lite pull consumer: --namesrv, --topic, --group, --assign true (all queues by hand) or subscribe, --expression or --sql,
 * --steps, --idle-ms, --model CLUSTERING|BROADCASTING, --from FIRST|LAST, --instance (its name), --offsets (the directory
 * of a broadcasting consumer's offsets). Steps are separated by commas, each {@code <seek>:<expected messages>} where seek is none, begin,
 * end, time=&lt;ms&gt; or a queue offset; after each step what was polled is committed. Rows carry their
 * step.
 */
final class LitePull {
    private static final int POLL_TIMEOUT_MS = 100;

    private final DefaultLitePullConsumer consumer;
    private final Arguments arguments;
    private final String topic;

    private LitePull(Arguments arguments) {
        this.arguments = arguments;
        topic = arguments.text("topic");
        consumer = new DefaultLitePullConsumer(arguments.text("group"), arguments.hook());
    }

    static void run(Arguments arguments) throws Exception {
        if (arguments.has("offsets")) {
            System.setProperty("rocketmq.client.localOffsetStoreDir", arguments.text("offsets"));
        }
        LitePull lite = new LitePull(arguments);
        lite.start();
        String[] steps = arguments.text("steps").split(",");
        for (int i = 0; i < steps.length; i++) {
            String[] step = steps[i].split(":");
            lite.seek(step[0]);
            lite.poll(i, Integer.parseInt(step[1]));
        }
        lite.consumer.shutdown();
        Rows.event("end");
    }

    private void start() throws Exception {
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setAutoCommit(false);
        if (arguments.has("instance")) {
            consumer.setInstanceName(arguments.text("instance"));
        }
        if (arguments.has("model")) {
            setModel(arguments.text("model"));
        }
        if (arguments.has("from")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + arguments.text("from") + "_OFFSET"));
        }
        if (!arguments.is("assign")) {
            consumer.subscribe(topic, Messages.selector(arguments));
            consumer.start();
            return;
        }
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
    }

    /** The enumeration lives in another package in 5.x, and these classes are compiled once for both. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private void setModel(String name) throws Exception {
        Class type = DefaultLitePullConsumer.class.getMethod("getMessageModel").getReturnType();
        DefaultLitePullConsumer.class.getMethod("setMessageModel", type).invoke(consumer, Enum.valueOf(type, name));
    }

    private void seek(String where) throws Exception {
        if (where.equals("none")) {
            return;
        }
        for (MessageQueue queue : awaitAssignment()) {
            if (where.equals("begin")) {
                consumer.seekToBegin(queue);
            } else if (where.equals("end")) {
                consumer.seekToEnd(queue);
            } else if (where.startsWith("time=")) {
                consumer.seek(queue, consumer.offsetForTimestamp(queue, Long.parseLong(where.substring(5))));
            } else {
                consumer.seek(queue, Long.parseLong(where));
            }
        }
    }

    private Collection<MessageQueue> awaitAssignment() throws Exception {
        while (true) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            Collection<MessageQueue> assigned = consumer.assignment();
            if (assigned.size() == queues.size()) {
                return assigned;
            }
            Thread.sleep(20);
        }
    }

    private void poll(int step, int expected) {
        int polled = 0;
        long idleMs = arguments.number("idle-ms", 20_000);
        long quietSince = System.currentTimeMillis();
        while (System.currentTimeMillis() - quietSince < (polled >= expected ? 300 : idleMs)) {
            List<MessageExt> messages = consumer.poll(POLL_TIMEOUT_MS);
            for (MessageExt message : messages) {
                Map<String, Object> row = Rows.row("event", "message", "step", step);
                row.putAll(Messages.row(message));
                Rows.print(row);
                quietSince = System.currentTimeMillis();
            }
            polled += messages.size();
        }
        consumer.commitSync();
        Rows.event("step", "step", step, "count", polled);
    }
}
