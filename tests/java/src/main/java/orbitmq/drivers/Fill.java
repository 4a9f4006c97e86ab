package orbitmq.drivers;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/**
 * Fills a topic with the messages [0, count), quickly: --namesrv, --topic, --count, --run, --single (how many go alone, of which
 * the long ones are compressed), --delayed (how many of these come a second later), --batch (how many go together else).
 * One row at the end: how many there are, and their digest, which does not depend on their order.
 *
 * The digest is the sum of the messages' own: the first 15 hexadecimal digits of the MD5 of unique id, tags, keys, flag
 * and the user properties, joined by '|', and of the body behind them.
 */
final class Fill {
    private static final int IN_FLIGHT = 256;

    private final DefaultMQProducer producer;
    private final String topic;
    private final String run;
    private final MessageDigest md5 = MessageDigest.getInstance("MD5");
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private BigInteger digest = BigInteger.ZERO;

    private Fill(Arguments arguments, DefaultMQProducer producer) throws Exception {
        this.producer = producer;
        topic = arguments.text("topic");
        run = arguments.text("run");
    }

    static void run(Arguments arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("fillers");
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(arguments.number("timeout-ms", 30_000));
        producer.start();
        Fill fill = new Fill(arguments, producer);
        int count = arguments.number("count", 1);
        int single = arguments.number("single", 0);
        fill.single(single, arguments.number("delayed", 0));
        fill.batches(single, count, arguments.number("batch", 100));
        if (fill.failure.get() != null) {
            throw new IllegalStateException(fill.failure.get());
        }
        Rows.event("filled", "count", count, "digest", fill.digest.toString());
        producer.shutdown();
    }

    private void single(int count, int delayed) throws Exception {
        Semaphore permits = new Semaphore(IN_FLIGHT);
        for (int i = 0; i < count; i++) {
            Message message = message(i);
            if (i < delayed) {
                message.setDelayTimeLevel(1);
            }
            permits.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    check(result);
                    permits.release();
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    permits.release();
                }
            });
        }
        permits.acquire(IN_FLIGHT);
    }

    private void batches(int first, int end, int size) throws Exception {
        for (int start = first; start < end; start += size) {
            List<Message> messages = new ArrayList<>();
            for (int i = start; i < Math.min(start + size, end); i++) {
                messages.add(message(i));
            }
            check(producer.send(messages));
        }
    }

    private void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failure.set(new IllegalStateException(result.toString()));
        }
    }

    private Message message(int index) {
        Message message = Messages.create(topic, run, index);
        MessageClientIDSetter.setUniqID(message);
        digest = digest.add(digest(message));
        return message;
    }

    private BigInteger digest(Message message) {
        String text = String.join("|", MessageClientIDSetter.getUniqID(message), message.getTags(), message.getKeys(),
            String.valueOf(message.getFlag()), message.getUserProperty("run"), message.getUserProperty("index"),
            message.getUserProperty("city"), message.getUserProperty("note"));
        md5.update(text.getBytes(StandardCharsets.UTF_8));
        return new BigInteger(1, md5.digest(message.getBody())).shiftRight(128 - 60);
    }
}
