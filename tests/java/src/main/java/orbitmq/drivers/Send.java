package orbitmq.drivers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends the messages [first, first + count): --namesrv, --topic, --mode sync|async|oneway|batch, --count, --first,
 * --run, --trace true, --linger-ms, --group, --namespace, --batch, --queue (a fixed queue id, sync only), --delay-level (sync only). A row a result; a oneway
 * run has the final row only. It ends when readers see what was sent, but for delayed messages.
 */
final class Send {
    private static final int ASYNC_IN_FLIGHT = 256;
    // A client looks at its routes 10 ms after its start. A topic that the first message has created by then gets another
    // route in the middle of the run, and with it a new turn of its queues.
    private static final long FIRST_LOOK_MS = 100;
    private static final long READABLE_MS = 30_000;

    private final DefaultMQProducer producer;
    private final String topic;
    private final String run;
    private final int first;
    private final int count;
    private final Map<MessageQueue, Long> ends = new ConcurrentHashMap<>();

    private Send(Arguments arguments, DefaultMQProducer producer) {
        this.producer = producer;
        topic = arguments.text("topic");
        run = arguments.text("run", "run");
        first = arguments.number("first", 0);
        count = arguments.number("count", 1);
    }

    static void run(Arguments arguments) throws Exception {
        DefaultMQProducer producer =
            new DefaultMQProducer(arguments.text("group", "producers"), arguments.hook(), arguments.is("trace"), null);
        producer.setNamesrvAddr(arguments.text("namesrv"));
        if (arguments.has("namespace")) {
            producer.setNamespace(arguments.text("namespace"));
        }
        producer.setSendMsgTimeout(arguments.number("timeout-ms", 10_000));
        producer.start();
        Thread.sleep(FIRST_LOOK_MS);
        Send send = new Send(arguments, producer);
        switch (arguments.text("mode", "sync")) {
            case "sync" -> send.sync(arguments.number("queue", -1), arguments.number("delay-level", 0));
            case "async" -> send.async();
            case "oneway" -> send.oneway();
            case "batch" -> send.batch(arguments.number("batch", 32));
            default -> throw new IllegalArgumentException("--mode is sync, async, oneway or batch");
        }
        send.awaitReaders();
        Thread.sleep(arguments.number("linger-ms", 0)); // traces follow on other threads, and a shutdown leaves them behind
        Rows.event("end", "count", send.count);
        producer.shutdown();
    }

    private void sync(int queueId, int delayLevel) throws Exception {
        for (int i = first; i < first + count; i++) {
            Message message = Messages.create(topic, run, i);
            if (delayLevel > 0) {
                message.setDelayTimeLevel(delayLevel);
            }
            print(i, queueId < 0 ? producer.send(message) : producer.send(message, queue(queueId)));
            if (delayLevel > 0) {
                ends.clear(); // its offset is that of another topic
            }
        }
    }

    private MessageQueue queue(int queueId) throws Exception {
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            if (queue.getQueueId() == queueId) {
                return queue;
            }
        }
        throw new IllegalArgumentException("topic " + topic + " has no queue " + queueId);
    }

    private void async() throws Exception {
        Semaphore permits = new Semaphore(ASYNC_IN_FLIGHT);
        for (int i = first; i < first + count; i++) {
            int index = i;
            permits.acquire();
            producer.send(Messages.create(topic, run, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print(index, result);
                    permits.release();
                }

                @Override
                public void onException(Throwable error) {
                    Rows.print(Rows.row("index", index, "status", "FAILED", "error", error.toString()));
                    permits.release();
                }
            });
        }
        permits.acquire(ASYNC_IN_FLIGHT);
    }

    private void oneway() throws Exception {
        for (int i = first; i < first + count; i++) {
            producer.sendOneway(Messages.create(topic, run, i));
        }
        // An answered request on the same connections shows that everything before it left this process.
        long deadline = System.currentTimeMillis() + READABLE_MS;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            awaitAnswer(queue, deadline);
        }
    }

    /** The broker may have to take all that was sent before it gets to the question: longer than a client waits once. */
    private void awaitAnswer(MessageQueue queue, long deadline) throws MQClientException {
        while (true) {
            try {
                producer.maxOffset(queue);
                return;
            } catch (MQClientException error) {
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
            }
        }
    }

    private void batch(int size) throws Exception {
        for (int start = first; start < first + count; start += size) {
            List<Message> messages = new ArrayList<>();
            for (int i = start; i < Math.min(start + size, first + count); i++) {
                messages.add(Messages.create(topic, run, i));
            }
            SendResult result = producer.send(messages);
            String[] ids = result.getMsgId().split(",");
            String[] offsetIds = result.getOffsetMsgId().split(",");
            for (int k = 0; k < messages.size(); k++) {
                print(start + k, result, ids[k], offsetIds[k], result.getQueueOffset() + k);
            }
        }
    }

    /** A broker acknowledges what it has in its log; its queues know it a moment later. */
    private void awaitReaders() throws Exception {
        long deadline = System.currentTimeMillis() + READABLE_MS;
        for (Map.Entry<MessageQueue, Long> end : ends.entrySet()) {
            try {
                while (producer.maxOffset(end.getKey()) < end.getValue()) {
                    if (System.currentTimeMillis() > deadline) {
                        throw new IllegalStateException("readers do not see " + end);
                    }
                    Thread.sleep(2);
                }
            } catch (MQClientException gone) {
                continue; // a broker that was killed meanwhile has no readers
            }
        }
    }

    private void print(int index, SendResult result) {
        print(index, result, result.getMsgId(), result.getOffsetMsgId(), result.getQueueOffset());
    }

    private void print(int index, SendResult result, String msgId, String offsetMsgId, long queueOffset) {
        MessageQueue queue = result.getMessageQueue();
        ends.merge(queue, queueOffset + 1, Math::max);
        Rows.print(Rows.row(
            "index", index, "status", result.getSendStatus(), "msgId", msgId, "offsetMsgId", offsetMsgId,
            "broker", queue.getBrokerName(), "queueId", queue.getQueueId(), "queueOffset", queueOffset));
    }
}
