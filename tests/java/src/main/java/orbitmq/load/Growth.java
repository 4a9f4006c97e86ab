package orbitmq.load;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageQueue;

/** By how many messages the queues of the topic have grown since this was made; asked on a connection of its own. */
final class Growth implements AutoCloseable {
    private static final long LOOK_MS = 5;

    private final DefaultMQPullConsumer observer = new DefaultMQPullConsumer("load-observers");
    private final List<MessageQueue> queues;
    private final long before;

    Growth(Load load) throws Exception {
        observer.setNamesrvAddr(load.namesrv);
        observer.setInstanceName("observer");
        observer.start();
        queues = List.copyOf(observer.fetchSubscribeMessageQueues(load.topic));
        before = stored();
    }

    long now() throws Exception {
        return stored() - before;
    }

    /** What it is when it is {@code wanted} or more. */
    long await(long wanted) throws Exception {
        long found = now();
        while (found < wanted) {
            Thread.sleep(LOOK_MS);
            found = now();
        }
        return found;
    }

    private long stored() throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues) {
            sum += observer.maxOffset(queue);
        }
        return sum;
    }

    @Override
    public void close() {
        observer.shutdown();
    }
}
