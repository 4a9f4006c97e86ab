package orbitmq.load;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import orbitmq.drivers.Arguments;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends as fast as the broker answers: --threads, --in-flight (async), --batch, --count (fill, delay: that many). */
final class Sending {
    private static final int DELAY_LEVEL = 1; // a second
    private static final double WARM_UP_SHARE = 0.25; // of the messages that are delayed

    private final Load load;
    private final int threads;
    private final int batch;
    private final long count;
    private final Semaphore inFlight;
    private final AtomicLong numbers = new AtomicLong();
    private final TransactionMQProducer producer = new TransactionMQProducer("load-producers");
    private volatile boolean running = true;

    Sending(Load load, Arguments arguments) throws Exception {
        this.load = load;
        threads = arguments.number("threads", 1);
        batch = arguments.number("batch", 32);
        count = arguments.number("count", 0);
        inFlight = new Semaphore(arguments.number("in-flight", 512));
        producer.setNamesrvAddr(load.namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new Committing());
        producer.start();
    }

    Map<String, Object> run(String work) throws Exception {
        try (Growth growth = new Growth(load)) {
            List<Thread> senders = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                Thread sender = new Thread(() -> repeat(work));
                sender.start();
                senders.add(sender);
            }
            Map<String, Object> row = switch (work) {
                case "fill" -> fill(senders);
                case "delay" -> delivered(growth);
                case "oneway", "transaction" -> stored(growth); // nobody acknowledges what is oneway, nor a commit
                default -> acknowledged();
            };
            running = false;
            for (Thread sender : senders) {
                sender.join();
            }
            return row;
        } finally {
            producer.shutdown();
        }
    }

    private Map<String, Object> fill(List<Thread> senders) throws Exception {
        load.meter.begin();
        for (Thread sender : senders) {
            sender.join();
        }
        return load.meter.end();
    }

    private Map<String, Object> acknowledged() throws Exception {
        Thread.sleep(load.warmUpMs);
        load.meter.begin();
        Thread.sleep(load.windowMs);
        return load.meter.end();
    }

    private Map<String, Object> stored(Growth growth) throws Exception {
        Thread.sleep(load.warmUpMs);
        long before = growth.now();
        load.meter.begin();
        Thread.sleep(load.windowMs);
        return load.meter.end(growth.now() - before);
    }

    /** From the time on at which a share of the delayed messages has come, until all have. */
    private Map<String, Object> delivered(Growth growth) throws Exception {
        long before = growth.await((long) (count * WARM_UP_SHARE));
        load.meter.begin();
        return load.meter.end(growth.await(count) - before);
    }

    private void repeat(String work) {
        while (running && (count == 0 || numbers.get() < count)) {
            long begin = System.nanoTime();
            try {
                switch (work) {
                    case "sync" -> acknowledged(producer.send(next()), 1, begin);
                    case "async" -> sendAsync(begin);
                    case "oneway" -> producer.sendOneway(next());
                    case "transaction" -> acknowledged(producer.sendMessageInTransaction(next(), null), 1, begin);
                    case "delay" -> sendDelayed(begin);
                    default -> acknowledged(producer.send(nextBatch()), batch, begin);
                }
            } catch (Exception e) {
                load.meter.failed();
            }
        }
    }

    private Message next() {
        return load.message(numbers.incrementAndGet());
    }

    private void sendDelayed(long begin) throws Exception {
        Message message = next();
        message.setDelayTimeLevel(DELAY_LEVEL);
        acknowledged(producer.send(message), 1, begin);
    }

    private List<Message> nextBatch() {
        List<Message> messages = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            messages.add(next());
        }
        return messages;
    }

    private void sendAsync(long begin) throws Exception {
        inFlight.acquire();
        producer.send(next(), new SendCallback() {
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

    private static final class Committing implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
