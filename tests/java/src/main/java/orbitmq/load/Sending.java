package orbitmq.load;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import orbitmq.drivers.Arguments;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends as fast as the broker answers: --threads, --in-flight (async), --batch, --count (fill: that many). */
final class Sending {
    private final Load load;
    private final int threads;
    private final int batch;
    private final long count;
    private final Semaphore inFlight;
    private final AtomicLong numbers = new AtomicLong();
    private final DefaultMQProducer producer = new DefaultMQProducer("load-producers");
    private volatile boolean running = true;

    Sending(Load load, Arguments arguments) throws Exception {
        this.load = load;
        threads = arguments.number("threads", 1);
        batch = arguments.number("batch", 32);
        count = arguments.number("count", 0);
        inFlight = new Semaphore(arguments.number("in-flight", 512));
        producer.setNamesrvAddr(load.namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
    }

    Map<String, Object> run(String work) throws Exception {
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread sender = new Thread(() -> repeat(work));
            sender.start();
            senders.add(sender);
        }
        Map<String, Object> row = work.equals("fill") ? fill(senders) : measure(work);
        running = false;
        for (Thread sender : senders) {
            sender.join();
        }
        producer.shutdown();
        return row;
    }

    private Map<String, Object> fill(List<Thread> senders) throws Exception {
        load.meter.begin();
        for (Thread sender : senders) {
            sender.join();
        }
        return load.meter.end();
    }

    private Map<String, Object> measure(String work) throws Exception {
        Thread.sleep(load.warmUpMs);
        if (!work.equals("oneway")) {
            load.meter.begin();
            Thread.sleep(load.windowMs);
            return load.meter.end();
        }
        // Nobody acknowledges a oneway message: what counts is how the queues grow, asked on another connection.
        DefaultMQPullConsumer observer = new DefaultMQPullConsumer("load-observers");
        observer.setNamesrvAddr(load.namesrv);
        observer.setInstanceName("observer");
        observer.start();
        List<MessageQueue> queues = List.copyOf(observer.fetchSubscribeMessageQueues(load.topic));
        long before = stored(observer, queues);
        load.meter.begin();
        Thread.sleep(load.windowMs);
        return load.meter.end(stored(observer, queues) - before);
    }

    private static long stored(DefaultMQPullConsumer observer, List<MessageQueue> queues) throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues) {
            sum += observer.maxOffset(queue);
        }
        return sum;
    }

    private void repeat(String work) {
        while (running && (count == 0 || numbers.get() < count)) {
            long begin = System.nanoTime();
            try {
                switch (work) {
                    case "sync" -> acknowledged(producer.send(load.message(numbers.incrementAndGet())), 1, begin);
                    case "async" -> sendAsync(begin);
                    case "oneway" -> producer.sendOneway(load.message(numbers.incrementAndGet()));
                    default -> acknowledged(producer.send(nextBatch()), batch, begin);
                }
            } catch (Exception e) {
                load.meter.failed();
            }
        }
    }

    private List<Message> nextBatch() {
        List<Message> messages = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            messages.add(load.message(numbers.incrementAndGet()));
        }
        return messages;
    }

    private void sendAsync(long begin) throws Exception {
        inFlight.acquire();
        producer.send(load.message(numbers.incrementAndGet()), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                inFlight.release();
                acknowledged(result, 1, begin);
            }

            @Override
            public void onException(Throwable e) {
                inFlight.release();
                load.meter.failed();
            }
        });
    }

    private void acknowledged(SendResult result, int messages, long begin) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            load.meter.done(messages, System.nanoTime() - begin);
        } else {
            load.meter.failed();
        }
    }
}
