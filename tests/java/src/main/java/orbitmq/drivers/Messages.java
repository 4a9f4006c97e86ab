package orbitmq.drivers;

import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The messages of every live test, each a function of its index, so that whoever reads them can tell what was sent.
 * tests/support/messages.py computes the same:
 * <ul>
 * <li>body: 5000 + index % 1000 bytes if index % 50 = 49 (long enough to be compressed), otherwise 20 + index % 300
 * bytes; byte j is (31 * index + j % 61) mod 256
 * <li>tags: TagA, TagB or TagC by index % 3; keys: order-&lt;index&gt; and customer-&lt;index % 97&gt;; flag: index % 7
 * <li>user properties: run (the label of the run), index, city (one of five by index % 5), note
 * </ul>
 */
final class Messages {
    private static final List<String> CITIES = List.of("München", "東京", "São Paulo", "Kraków", "Αθήνα");

    private Messages() {
    }

    static Message create(String topic, String run, int index) {
        Message message = new Message(topic, body(index));
        message.setTags("Tag" + "ABC".charAt(index % 3));
        message.setKeys(List.of("order-" + index, "customer-" + index % 97));
        message.setFlag(index % 7);
        message.putUserProperty("run", run);
        message.putUserProperty("index", String.valueOf(index));
        message.putUserProperty("city", CITIES.get(index % CITIES.size()));
        message.putUserProperty("note", "🚀 no. " + index + " \"quoted\" \\ {a=b;c}");
        return message;
    }

    /** What a driver is to read: the SQL92 expression --sql, or the tags --expression, or everything. */
    static MessageSelector selector(Arguments arguments) {
        String sql = arguments.text("sql", "");
        return sql.isEmpty() ? MessageSelector.byTag(arguments.text("expression", "*")) : MessageSelector.bySql(sql);
    }

    static byte[] body(int index) {
        byte[] body = new byte[index % 50 == 49 ? 5000 + index % 1000 : 20 + index % 300];
        for (int j = 0; j < body.length; j++) {
            body[j] = (byte) (31 * index + j % 61);
        }
        return body;
    }

    /** A received message as a row; properties are all that it carries, the client's own included. */
    static Map<String, Object> row(MessageExt message) {
        Map<String, Object> row = Rows.row(
            "topic", message.getTopic(), "broker", message.getBrokerName(), "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(), "msgId", message.getMsgId(), "tags", message.getTags(),
            "keys", message.getKeys(), "flag", message.getFlag(), "sysFlag", message.getSysFlag());
        row.putAll(Rows.row(
            "bodySize", message.getBody().length, "bodySha256", sha256(message.getBody()),
            "bornHost", message.getBornHostString(), "bornPort", port(message.getBornHost()),
            "storeHost", message.getStoreHost().toString().replaceFirst("^/", ""),
            "bornTimestamp", message.getBornTimestamp(), "storeTimestamp", message.getStoreTimestamp(),
            "commitLogOffset", message.getCommitLogOffset(), "reconsumeTimes", message.getReconsumeTimes(),
            "properties", new TreeMap<>(message.getProperties())));
        return row;
    }

    private static int port(java.net.SocketAddress address) {
        return ((java.net.InetSocketAddress) address).getPort();
    }

    private static String sha256(byte[] data) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
