package orbitmq.drivers;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads every queue of a topic from its first to its last message by plain pulls: --namesrv, --topic, --group,
 * --expression or --sql, --bodies true (as text). Rows: event message for each, event queue with the bounds of each queue, event end.
 */
final class Pull {
    private static final int MESSAGES_A_PULL = 32;

    private Pull() {
    }

    static void run(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.text("group", "pullers"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(arguments.text("topic")));
        queues.sort(Comparator.naturalOrder());
        awaitVersion(consumer, queues.get(0));
        int count = 0;
        for (MessageQueue queue : queues) {
            count += readQueue(consumer, queue, arguments);
        }
        Rows.event("end", "count", count);
        consumer.shutdown();
    }

    /** The client sends an expression to a broker only when a heartbeat has told it the broker's version. */
    private static void awaitVersion(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        consumer.minOffset(queue); // heartbeats go to brokers that were asked for something
        MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        String address = client.findBrokerAddressInPublish(queue.getBrokerName());
        while (client.findBrokerVersion(queue.getBrokerName(), address) == 0) {
            client.sendHeartbeatToAllBrokerWithLock();
            Thread.sleep(20);
        }
    }

    private static int readQueue(DefaultMQPullConsumer consumer, MessageQueue queue, Arguments arguments)
        throws Exception {
        long first = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        Rows.event("queue", "queueId", queue.getQueueId(), "minOffset", first, "maxOffset", end);
        int count = 0;
        for (long offset = first; offset < end; ) {
            PullResult result = consumer.pull(queue, Messages.selector(arguments), offset, MESSAGES_A_PULL);
            List<MessageExt> found = result.getMsgFoundList();
            for (MessageExt message : found == null ? List.<MessageExt>of() : found) {
                Map<String, Object> row = Rows.row("event", "message");
                row.putAll(Messages.row(message));
                if (arguments.is("bodies")) {
                    row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
                }
                Rows.print(row);
                count++;
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("no progress at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return count;
    }
}
