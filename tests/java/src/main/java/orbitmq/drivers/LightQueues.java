package orbitmq.drivers;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Multi-dispatch into light queues: --namesrv, --topic, --broker (its name), --names (light queues, without %LMQ%),
 * --count. Message n goes to the first n modulo (names + 1) of them. Then each light queue is pulled for the group
 * %LMQ%readers. Rows: event message with the light queue as "light", event queue with its bounds and the offset that is
 * stored for the group afterwards.
 */
final class LightQueues {
    private static final String PREFIX = "%LMQ%";

    private LightQueues() {
    }

    static void run(Arguments arguments) throws Exception {
        List<String> names = List.of(arguments.text("names").split(","));
        MessageQueue place = send(arguments, names);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(PREFIX + "readers");
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.start();
        consumer.minOffset(place); // a light topic has no route: its broker is known by this one
        for (int i = 0; i < names.size(); i++) {
            MessageQueue queue = new MessageQueue(PREFIX + names.get(i), arguments.text("broker"), 0);
            // RocketMQ enters messages into their queues a moment after they are acknowledged.
            while (consumer.maxOffset(queue) < arguments.number("count", 1) * (names.size() - i) / (names.size() + 1)) {
                Thread.sleep(20);
            }
            read(consumer, queue, names.get(i));
        }
        Rows.event("end");
        consumer.shutdown();
    }

    private static MessageQueue send(Arguments arguments, List<String> names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.start();
        MessageQueue place = null;
        for (int i = 0; i < arguments.number("count", 1); i++) {
            Message message = Messages.create(arguments.text("topic"), arguments.text("run", "run"), i);
            List<String> chosen = names.subList(0, i % (names.size() + 1));
            if (!chosen.isEmpty()) {
                String dispatch = PREFIX + String.join("," + PREFIX, chosen);
                MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", dispatch);
            }
            place = producer.send(message).getMessageQueue();
        }
        producer.shutdown();
        return place;
    }

    private static void read(DefaultMQPullConsumer consumer, MessageQueue queue, String name) throws Exception {
        long end = consumer.maxOffset(queue);
        for (long offset = 0; offset < end; ) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            for (MessageExt message : result.getMsgFoundList()) {
                Map<String, Object> row = Rows.row("event", "message", "light", name);
                row.putAll(Messages.row(message));
                Rows.print(row);
            }
            offset = result.getNextBeginOffset();
        }
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, end);
        consumer.getOffsetStore().persist(queue);
        long stored = consumer.fetchConsumeOffset(queue, true);
        for (int tries = 0; stored != end && tries < 100; tries++) { // it was told without waiting for an answer
            Thread.sleep(20);
            stored = consumer.fetchConsumeOffset(queue, true);
        }
        Rows.event("queue", "light", name, "minOffset", consumer.minOffset(queue), "maxOffset", end, "stored", stored);
    }
}
