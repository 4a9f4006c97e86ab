package orbitmq.drivers;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Requests and replies: --namesrv, --topic, --group, --count, --roles ask|answer|both. Request n has the body "n"; its
 * reply is "n!", of 10,000 bytes for every third one. Then one request that nobody answers (tag Ignored), with a second
 * of patience. Rows: event reply (how: sync or async), event timeout, event answered for each reply with what its sender
 * was told, event end. One that only answers stays until it is stopped.
 */
final class RequestReply {
    private static final int PATIENCE_MS = 20_000;

    private final Arguments arguments;
    private final String topic;
    private final DefaultMQProducer producer;

    private RequestReply(Arguments arguments) throws Exception {
        this.arguments = arguments;
        topic = arguments.text("topic");
        producer = new DefaultMQProducer(arguments.text("group") + "-producers", arguments.hook());
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
    }

    static void run(Arguments arguments) throws Exception {
        RequestReply both = new RequestReply(arguments);
        String roles = arguments.text("roles", "both");
        if (!roles.equals("ask")) {
            both.answer();
        }
        if (roles.equals("answer")) {
            Thread.sleep(Long.MAX_VALUE);
        }
        both.ask(arguments.number("count", 1));
        Rows.event("end");
    }

    private void answer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            arguments.text("group"), arguments.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (!"Ignored".equals(message.getTags())) {
                    reply(message);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        awaitRoute();
        consumer.start();
        Rows.event("started");
    }

    /** A consumer that starts before the name server knows the topic looks for it again after 30 seconds only. */
    private void awaitRoute() throws InterruptedException {
        for (int tries = 0; tries < 100; tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException missing) {
                Thread.sleep(100);
            }
        }
    }

    private void reply(MessageExt message) {
        String text = new String(message.getBody(), StandardCharsets.UTF_8);
        String body = Integer.parseInt(text) % 3 == 0 ? (text + "!" + " ".repeat(10_000)).substring(0, 10_000) : text + "!";
        try {
            Message reply = MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(reply, PATIENCE_MS);
            Rows.event("answered", "index", Integer.parseInt(text), "status", result.getSendStatus(), "topic",
                reply.getTopic(), "queueId", result.getMessageQueue().getQueueId());
        } catch (Exception error) {
            Rows.event("answered", "index", Integer.parseInt(text), "status", "FAILED", "error", error.toString());
        }
    }

    private void ask(int count) throws Exception {
        CountDownLatch open = new CountDownLatch(count / 2);
        for (int i = 0; i < count; i++) {
            Message request = new Message(topic, "Asked", String.valueOf(i).getBytes(StandardCharsets.UTF_8));
            if (i % 2 == 0) {
                print("sync", producer.request(request, PATIENCE_MS));
            } else {
                AtomicBoolean first = new AtomicBoolean(true);
                producer.request(request, new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        // 4.9.7 calls this also when the request is sent: with nothing, or with a reply that was faster.
                        if (reply != null && first.getAndSet(false)) {
                            print("async", reply);
                            open.countDown();
                        }
                    }

                    @Override
                    public void onException(Throwable error) {
                        Rows.event("failed", "error", error.toString());
                        open.countDown();
                    }
                }, PATIENCE_MS);
            }
        }
        open.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
        try {
            producer.request(new Message(topic, "Ignored", "-1".getBytes(StandardCharsets.UTF_8)), 1000);
        } catch (RequestTimeoutException error) {
            Rows.event("timeout");
        }
    }

    private static void print(String how, Message reply) {
        String body = new String(reply.getBody(), StandardCharsets.UTF_8);
        Rows.event("reply", "how", how, "body", body.strip(), "size", reply.getBody().length, "topic", reply.getTopic(),
            "type", reply.getProperty("MSG_TYPE"), "pushed", reply.getProperty("PUSH_REPLY_TIME"));
    }
}
