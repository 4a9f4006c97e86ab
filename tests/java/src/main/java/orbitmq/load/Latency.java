package orbitmq.load;

import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import orbitmq.drivers.Arguments;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** From the call of send to the listener of a push consumer, at a steady --rate of messages a second. */
final class Latency {
    private static final String SENT_AT = "sentAt";

    private final Load load;
    private final int rate;
    private volatile boolean running = true;

    Latency(Load load, Arguments arguments) {
        this.load = load;
        rate = arguments.number("rate", 1000);
    }

    Map<String, Object> run() throws Exception {
        DefaultMQPushConsumer consumer = consumer();
        DefaultMQProducer producer = new DefaultMQProducer("load-producers");
        producer.setNamesrvAddr(load.namesrv);
        producer.start();
        Thread sender = new Thread(() -> sendSteadily(producer));
        sender.start();
        Thread.sleep(load.warmUpMs);
        load.meter.begin();
        Thread.sleep(load.windowMs);
        Map<String, Object> row = load.meter.end();
        running = false;
        sender.join();
        consumer.shutdown();
        producer.shutdown();
        return row;
    }

    private DefaultMQPushConsumer consumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-listeners-" + ProcessHandle.current().pid());
        consumer.setNamesrvAddr(load.namesrv);
        consumer.subscribe(load.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            messages.forEach(message -> load.meter.done(1, now - Long.parseLong(message.getUserProperty(SENT_AT))));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private void sendSteadily(DefaultMQProducer producer) {
        long next = System.nanoTime();
        for (long number = 0; running; number++) {
            next += 1_000_000_000L / rate;
            while (System.nanoTime() < next) {
                LockSupport.parkNanos(next - System.nanoTime());
            }
            Message message = load.message(number);
            message.putUserProperty(SENT_AT, String.valueOf(System.nanoTime()));
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                    }

                    @Override
                    public void onException(Throwable e) {
                        load.meter.failed();
                    }
                });
            } catch (Exception e) {
                load.meter.failed();
            }
        }
    }
}
