package orbitmq.drivers;

import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transaction producer: --namesrv, --topic, --group, --run, --first, --count, --plans (separated by commas, taken in
 * turn by index), --immunity-s. A plan stands in the message's property plan and says what the producer decides: commit
 * or rollback at once; check-commit, check-rollback or unknown when it is asked, at first it does not know.
 * Rows: one for each message sent, event checked for each question of the broker, event sent after the last message.
 * Goes on answering questions until it is stopped, or for --linger-ms.
 */
final class Transactions {
    private static final int HEARTBEAT_MS = 1000; // a producer that sends nothing becomes known soon

    private final Arguments arguments;
    private final TransactionMQProducer producer;

    private Transactions(Arguments arguments) {
        this.arguments = arguments;
        producer = new TransactionMQProducer(arguments.text("group"), arguments.hook());
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        producer.setTransactionListener(new Listener());
    }

    static void run(Arguments arguments) throws Exception {
        new Transactions(arguments).run();
    }

    private void run() throws Exception {
        producer.start();
        introduce(arguments.text("topic"));
        Rows.event("started");
        int first = arguments.number("first", 0);
        for (int i = first; i < first + arguments.number("count", 0); i++) {
            send(i);
        }
        Rows.event("sent");
        Thread.sleep(arguments.number("linger-ms", Integer.MAX_VALUE));
        producer.shutdown();
    }

    /**
     * Let the topic's brokers know the producer now. By itself it tells them a second after its start, and a question
     * that falls due before then counts without being asked.
     */
    private void introduce(String topic) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        MQClientInstance.class.getMethod("sendHeartbeatToAllBrokerWithLock").invoke(client); // boolean only in 5.x
    }

    private void send(int index) throws Exception {
        String[] plans = arguments.text("plans").split(",");
        Message message = Messages.create(arguments.text("topic"), arguments.text("run"), index);
        message.putUserProperty("plan", plans[index % plans.length]);
        String immunity = arguments.text("immunity-s", "");
        if (!immunity.isEmpty()) {
            message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", immunity);
        }
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        Rows.print(Rows.row(
            "index", index, "status", result.getSendStatus(), "state", result.getLocalTransactionState(),
            "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(),
            "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset()));
    }

    private static final class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return switch (message.getUserProperty("plan")) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String plan = message.getUserProperty("plan");
            Rows.event("checked", "index", Integer.parseInt(message.getUserProperty("index")), "plan", plan,
                "transactionId", message.getTransactionId(), "message", Messages.row(message));
            return switch (plan) {
                case "commit", "check-commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback", "check-rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }
    }
}
