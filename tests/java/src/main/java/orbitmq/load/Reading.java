package orbitmq.load;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import orbitmq.drivers.Arguments;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a topic that was filled before: --count messages by one push or lite pull consumer, or all over and over by pulls. */
final class Reading {
    private static final int MESSAGES_A_PULL = 32;
    private static final double WARM_UP_SHARE = 0.25; // of the messages of a push run

    private final Load load;
    private final long count;
    private final int threads;
    private volatile boolean running = true;

    Reading(Load load, Arguments arguments) {
        this.load = load;
        count = arguments.number("count", 0);
        threads = arguments.number("threads", 4);
    }

    Map<String, Object> pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("load-pullers");
        consumer.setNamesrvAddr(load.namesrv);
        consumer.start();
        List<MessageQueue> queues = List.copyOf(consumer.fetchSubscribeMessageQueues(load.topic));
        for (int i = 0; i < threads; i++) {
            MessageQueue queue = queues.get(i % queues.size());
            new Thread(() -> pullForever(consumer, queue)).start();
        }
        Thread.sleep(load.warmUpMs);
        load.meter.begin();
        Thread.sleep(load.windowMs);
        Map<String, Object> row = load.meter.end();
        running = false;
        return row;
    }

    private void pullForever(DefaultMQPullConsumer consumer, MessageQueue queue) {
        long offset = 0;
        while (running) {
            long begin = System.nanoTime();
            try {
                PullResult result = consumer.pull(queue, "*", offset, MESSAGES_A_PULL);
                if (result.getMsgFoundList() != null) {
                    load.meter.done(result.getMsgFoundList().size(), System.nanoTime() - begin);
                }
                offset = result.getNextBeginOffset() < result.getMaxOffset() ? result.getNextBeginOffset() : 0;
            } catch (Exception e) {
                load.meter.failed();
            }
        }
    }

    Map<String, Object> push(boolean orderly) throws Exception {
        AtomicLong received = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-consumers-" + ProcessHandle.current().pid());
        consumer.setNamesrvAddr(load.namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(load.topic, "*");
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                received.addAndGet(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                received.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long first = awaitCount(received, (long) (count * WARM_UP_SHARE));
        load.meter.begin();
        long last = awaitCount(received, count);
        Map<String, Object> row = load.meter.end(last - first);
        consumer.shutdown();
        return row;
    }

    Map<String, Object> poll() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("load-polls-" + ProcessHandle.current().pid());
        consumer.setNamesrvAddr(load.namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(MESSAGES_A_PULL);
        consumer.subscribe(load.topic, "*");
        consumer.start();
        long first = pollUntil(consumer, 0, (long) (count * WARM_UP_SHARE));
        load.meter.begin();
        long last = pollUntil(consumer, first, count);
        Map<String, Object> row = load.meter.end(last - first);
        consumer.shutdown();
        return row;
    }

    private static long pollUntil(DefaultLitePullConsumer consumer, long already, long wanted) {
        long received = already;
        while (received < wanted) {
            received += consumer.poll().size();
        }
        return received;
    }

    private static long awaitCount(AtomicLong received, long wanted) throws InterruptedException {
        while (received.get() < wanted) {
            Thread.sleep(1);
        }
        return received.get();
    }
}
