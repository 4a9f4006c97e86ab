package orbitmq.drivers;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The words {@code --name value} of a command line. */
public final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    public Arguments(String[] words) {
        if (words.length % 2 != 0) {
            throw new IllegalArgumentException("arguments come in pairs: --name value");
        }
        for (int i = 0; i < words.length; i += 2) {
            values.put(words[i].substring(2), words[i + 1]);
        }
    }

    public boolean has(String name) {
        return values.containsKey(name);
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is needed");
        }
        return value;
    }

    public String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    public int number(String name, int otherwise) {
        return Integer.parseInt(text(name, String.valueOf(otherwise)));
    }

    /** What signs the requests of --access-key with --secret-key; null without them. */
    public RPCHook hook() {
        return values.containsKey("access-key") ? Signing.hook(text("access-key"), text("secret-key")) : null;
    }

    /** A class of its own, because some class paths of RocketMQ are without access control. */
    private static final class Signing {
        static RPCHook hook(String accessKey, String secretKey) {
            return new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
        }
    }

    public boolean is(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }
}
