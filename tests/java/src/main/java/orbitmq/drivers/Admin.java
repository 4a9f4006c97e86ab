package orbitmq.drivers;

import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ConsumeQueueData;
import org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Single questions about --topic, asked with the 4.9.7 libraries; --do says which: create (--queues, --broker address),
 * route, bounds (first and next offset of each queue), committed (offsets of --group), view (--ids separated by commas,
 * offset ids or unique ids), search (offsets at --time), query (messages with each of --keys, separated by commas: at
 * most --max, from --begin to --end), entries (of queue 0, at least --expect, judged for --group, from the broker at --broker).
 */
final class Admin {
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final DefaultMQPullConsumer consumer;
    private final Arguments arguments;
    private final String topic;

    private Admin(Arguments arguments) throws Exception {
        this.arguments = arguments;
        topic = arguments.text("topic");
        consumer = new DefaultMQPullConsumer(arguments.text("group", "askers"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        admin.setNamesrvAddr(arguments.text("namesrv"));
        admin.start();
        consumer.start();
    }

    static void run(Arguments arguments) throws Exception {
        Admin asker = new Admin(arguments);
        switch (arguments.text("do")) {
            case "create" -> asker.create();
            case "route" -> asker.route();
            case "bounds" -> asker.bounds();
            case "committed" -> asker.committed();
            case "view" -> asker.view();
            case "search" -> asker.search();
            case "query" -> asker.query();
            case "entries" -> asker.entries();
            default -> throw new IllegalArgumentException(
                "--do is create, route, bounds, committed, view, search, query or entries");
        }
        asker.consumer.shutdown();
        asker.admin.shutdown();
    }

    private void create() throws Exception {
        TopicConfig config = new TopicConfig(topic);
        config.setReadQueueNums(arguments.number("queues", 4));
        config.setWriteQueueNums(arguments.number("queues", 4));
        admin.createAndUpdateTopicConfig(arguments.text("broker"), config);
        Rows.event("created");
    }

    private void route() throws Exception {
        admin.examineTopicRouteInfo(topic).getQueueDatas().forEach(data -> Rows.print(Rows.row(
            "broker", data.getBrokerName(), "readQueues", data.getReadQueueNums(),
            "writeQueues", data.getWriteQueueNums(), "perm", data.getPerm())));
    }

    private TreeSet<MessageQueue> queues() throws Exception {
        return new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
    }

    private void bounds() throws Exception {
        for (MessageQueue queue : queues()) {
            Rows.print(Rows.row("queueId", queue.getQueueId(), "minOffset", consumer.minOffset(queue),
                "maxOffset", consumer.maxOffset(queue), "earliest", consumer.earliestMsgStoreTime(queue)));
        }
    }

    private void committed() throws Exception {
        for (MessageQueue queue : queues()) {
            long offset = consumer.fetchConsumeOffset(queue, true);
            Rows.print(Rows.row("queueId", queue.getQueueId(), "offset", offset));
        }
    }

    private void view() throws Exception {
        for (String id : arguments.text("ids").split(",")) {
            Map<String, Object> row = Rows.row("id", id);
            row.putAll(Messages.row(consumer.viewMessage(topic, id)));
            Rows.print(row);
        }
    }

    private void search() throws Exception {
        for (MessageQueue queue : queues()) {
            long offset = consumer.searchOffset(queue, Long.parseLong(arguments.text("time")));
            Rows.print(Rows.row("queueId", queue.getQueueId(), "offset", offset));
        }
    }

    private void query() throws Exception {
        long begin = Long.parseLong(arguments.text("begin", "0"));
        long end = Long.parseLong(arguments.text("end", String.valueOf(Long.MAX_VALUE)));
        for (String key : arguments.text("keys").split(",")) {
            try {
                QueryResult found = consumer.queryMessage(topic, key, arguments.number("max", 32), begin, end);
                for (MessageExt message : found.getMessageList()) {
                    Map<String, Object> row = Rows.row("key", key, "indexEnd", found.getIndexLastUpdateTimestamp());
                    row.putAll(Messages.row(message));
                    Rows.print(row);
                }
            } catch (MQClientException error) {
                Rows.print(Rows.row("key", key, "code", error.getResponseCode()));
            }
        }
    }

    private void entries() throws Exception {
        QueryConsumeQueueResponseBody body;
        do { // RocketMQ enters messages into their queues a moment after they are acknowledged
            Thread.sleep(20);
            body = admin.queryConsumeQueue(arguments.text("broker"), topic, 0, 0, 100, arguments.text("group"));
        } while (body == null || body.getQueueData() == null
            || body.getQueueData().size() < arguments.number("expect", 0));
        Rows.print(Rows.row("filter", body.getFilterData()));
        for (ConsumeQueueData entry : body.getQueueData()) {
            Rows.print(Rows.row("eval", entry.isEval(), "bits", entry.getBitMap(), "extension", entry.getExtendDataJson(),
                "code", entry.getTagsCode(), "message", entry.getMsg()));
        }
    }
}
