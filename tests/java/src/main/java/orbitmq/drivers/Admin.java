package orbitmq.drivers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Administrator's requests of the 4.9.7 client, --do says which: create (--topic, --queues, --broker), stats (--topic),
 * view (--topic, --ids separated by commas), progress (--group), search (--topic, --time), route (--topic).
 */
final class Admin {
    private Admin() {
    }

    static void run(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(arguments.text("namesrv"));
        admin.start();
        switch (arguments.text("do")) {
            case "create" -> create(admin, arguments);
            case "stats" -> stats(admin, arguments.text("topic"));
            case "view" -> view(admin, arguments);
            case "progress" -> progress(admin, arguments.text("group"));
            case "search" -> search(admin, arguments);
            case "route" -> route(admin, arguments.text("topic"));
            default -> throw new IllegalArgumentException("--do is create, stats, view, progress, search or route");
        }
        admin.shutdown();
    }

    private static void create(DefaultMQAdminExt admin, Arguments arguments) throws Exception {
        TopicConfig topic = new TopicConfig(arguments.text("topic"));
        topic.setReadQueueNums(arguments.number("queues", 4));
        topic.setWriteQueueNums(arguments.number("queues", 4));
        admin.createAndUpdateTopicConfig(arguments.text("broker"), topic);
        Rows.event("created");
    }

    private static void stats(DefaultMQAdminExt admin, String topic) throws Exception {
        admin.examineTopicStats(topic).getOffsetTable().forEach((queue, offset) -> Rows.print(Rows.row(
            "broker", queue.getBrokerName(), "queueId", queue.getQueueId(), "minOffset", offset.getMinOffset(),
            "maxOffset", offset.getMaxOffset(), "lastUpdate", offset.getLastUpdateTimestamp())));
    }

    private static void view(DefaultMQAdminExt admin, Arguments arguments) throws Exception {
        for (String id : arguments.text("ids").split(",")) {
            Map<String, Object> row = Rows.row("id", id);
            row.putAll(Messages.row(admin.viewMessage(arguments.text("topic"), id)));
            Rows.print(row);
        }
    }

    private static void progress(DefaultMQAdminExt admin, String group) throws Exception {
        admin.examineConsumeStats(group).getOffsetTable().forEach((queue, offset) -> Rows.print(Rows.row(
            "topic", queue.getTopic(), "queueId", queue.getQueueId(), "brokerOffset", offset.getBrokerOffset(),
            "consumerOffset", offset.getConsumerOffset())));
    }

    private static void search(DefaultMQAdminExt admin, Arguments arguments) throws Exception {
        for (MessageQueue queue : queues(admin, arguments.text("topic"))) {
            long offset = admin.searchOffset(queue, Long.parseLong(arguments.text("time")));
            Rows.print(Rows.row("queueId", queue.getQueueId(), "offset", offset));
        }
    }

    private static List<MessageQueue> queues(DefaultMQAdminExt admin, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(admin.examineTopicStats(topic).getOffsetTable().keySet());
        queues.sort(null);
        return queues;
    }

    private static void route(DefaultMQAdminExt admin, String topic) throws Exception {
        admin.examineTopicRouteInfo(topic).getQueueDatas().forEach(data -> Rows.print(Rows.row(
            "broker", data.getBrokerName(), "readQueues", data.getReadQueueNums(),
            "writeQueues", data.getWriteQueueNums(), "perm", data.getPerm())));
    }
}
