package orbitmq.load;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import orbitmq.drivers.Arguments;
import orbitmq.drivers.Rows;

/**
 * A producer that sends at a steady pace until it is ended, and prints a row a send: when it began (milliseconds since
 * the epoch), how long it took, which brokers were tried, and the one that has the message or the error.
 * tests/support/steady.py does the same with orbitmq's client and says what the arguments mean.
 */
public final class Steady implements SendMessageHook {
    private final Map<String, List<String>> tried = new ConcurrentHashMap<>(); // unique id -> brokers
    private final AtomicLong next = new AtomicLong();

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("run"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(arguments.number("timeout-ms", 3000));
        producer.setPollNameServerInterval(arguments.number("poll-ms", 30_000));
        producer.setSendLatencyFaultEnable(arguments.is("fault"));
        String isolation = arguments.text("isolation", "");
        if (!isolation.isEmpty()) {
            producer.setNotAvailableDuration(Arrays.stream(isolation.split(",")).mapToLong(Long::parseLong).toArray());
        }
        Steady steady = new Steady();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(steady);
        producer.start();
        producer.fetchPublishMessageQueues(arguments.text("topic"));
        Rows.event("started");
        for (int sender = 0; sender < arguments.number("senders", 4); sender++) {
            new Thread(() -> steady.send(producer, arguments)).start();
        }
    }

    private void send(DefaultMQProducer producer, Arguments arguments) {
        byte[] body = new byte[1024];
        while (true) {
            long index = next.getAndIncrement();
            Message message = new Message(arguments.text("topic"), "", arguments.text("run") + "-" + index, body);
            MessageClientIDSetter.setUniqID(message); // so that the hook knows the message by it from the first try on
            long beginMs = System.currentTimeMillis();
            long begin = System.nanoTime();
            String broker = null;
            String error = null;
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    broker = result.getMessageQueue().getBrokerName();
                } else {
                    error = result.getSendStatus().name();
                }
            } catch (Exception e) {
                error = e.toString();
            }
            long micros = (System.nanoTime() - begin) / 1000;
            List<String> brokers = tried.remove(MessageClientIDSetter.getUniqID(message));
            Rows.print(Rows.row("index", index, "begin", beginMs, "micros", micros,
                "tried", brokers == null ? List.of() : brokers, "broker", broker, "error", error));
            try {
                Thread.sleep(arguments.number("pause-ms", 20));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    @Override
    public String hookName() {
        return "tried";
    }

    @Override
    public void sendMessageBefore(SendMessageContext context) {
        String id = MessageClientIDSetter.getUniqID(context.getMessage());
        tried.computeIfAbsent(id, key -> new CopyOnWriteArrayList<>()).add(context.getMq().getBrokerName());
    }

    @Override
    public void sendMessageAfter(SendMessageContext context) {
    }
}
