package orbitmq.drivers;

import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What accounts may do with the ordinary clients and the administrator's: --namesrv, --broker (address), --topic,
 * --group, --id (of a message), --accounts "name=accessKey:secretKey,name=" (an account without keys signs nothing).
 * Rows: account, what, error (null: it worked).
 */
final class Access {
    private interface Action {
        Object run() throws Exception;
    }

    private final Arguments arguments;
    private final String namesrv;
    private final String topic;
    private final String group;
    private final String account;
    private final RPCHook hook;

    private Access(Arguments arguments, String account, String keys) {
        this.arguments = arguments;
        this.account = account;
        namesrv = arguments.text("namesrv");
        topic = arguments.text("topic");
        group = arguments.text("group");
        String[] pair = keys.split(":", 2);
        hook = keys.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(pair[0], pair[1]));
    }

    static void run(Arguments arguments) throws Exception {
        for (String entry : arguments.text("accounts").split(",")) {
            String[] pair = entry.split("=", 2);
            new Access(arguments, pair[0], pair[1]).clients();
        }
    }

    private void attempt(String what, Action action) {
        Object result = null;
        String error = null;
        try {
            result = action.run();
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            error = cause.getMessage() == null ? cause.toString() : cause.getMessage();
        }
        Rows.print(Rows.row("account", account, "what", what, "error", error, "result", result));
    }

    private void clients() throws Exception {
        DefaultMQProducer producer = producer("access-" + account);
        attempt("send", () -> send(producer, topic));
        attempt("send elsewhere", () -> send(producer, "elsewhere"));
        attempt("heartbeat", () -> heartbeat(producer, group));
        attempt("heartbeat of another group", () -> heartbeat(producer, "others"));
        producer.shutdown();
        DefaultMQProducer resender = producer(group);
        attempt("send to retry", () -> send(resender, "%RETRY%" + group));
        resender.shutdown();
        DefaultMQPullConsumer consumer = consumer();
        MessageQueue queue = new MessageQueue(topic, "broker-a", 0);
        attempt("pull", () -> consumer.pull(queue, "*", 0, 1).getPullStatus());
        attempt("commit", () -> {
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, 0, false);
            return null;
        });
        attempt("bounds", () -> consumer.maxOffset(queue));
        attempt("view", () -> consumer.viewMessage(arguments.text("id")).getTopic());
        consumer.shutdown();
        DefaultMQAdminExt admin = admin();
        attempt("create topic", () -> {
            admin.createAndUpdateTopicConfig(arguments.text("broker"), new TopicConfig("made-by-" + account));
            return null;
        });
        attempt("configuration", () -> admin.getBrokerConfig(arguments.text("broker")).size() > 0);
        admin.shutdown();
    }

    private DefaultMQProducer producer(String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name, hook);
        producer.setNamesrvAddr(namesrv);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(20_000);
        producer.setInstanceName(name + "-" + account);
        producer.start();
        return producer;
    }

    private static Object send(DefaultMQProducer producer, String topic) throws Exception {
        SendResult result = producer.send(new Message(topic, "tag", "key", new byte[] {1}));
        return result.getOffsetMsgId();
    }

    private Object heartbeat(DefaultMQProducer producer, String consumerGroup) throws Exception {
        ConsumerData data = new ConsumerData();
        data.setGroupName(consumerGroup);
        data.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        data.setMessageModel(MessageModel.CLUSTERING);
        data.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        data.setSubscriptionDataSet(Set.of(new SubscriptionData(topic, "*")));
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("heart-of-" + account);
        heartbeat.setConsumerDataSet(Set.of(data));
        producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .sendHeartbeat(arguments.text("broker"), heartbeat, 20_000);
        return null;
    }

    private DefaultMQPullConsumer consumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer-" + account);
        consumer.start();
        consumer.fetchSubscribeMessageQueues(topic);
        return consumer;
    }

    private DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(hook, 20_000);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin-" + account);
        admin.start();
        return admin;
    }
}
