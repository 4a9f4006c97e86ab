package orbitmq.load;

import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import orbitmq.drivers.Arguments;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Asks a topic that was filled with --count messages for one of them by its key, on each of --threads over and over. */
final class Querying {
    private static final int MESSAGES_MAX = 32; // that a query asks for; there is one of each key

    private final Load load;
    private final long count;
    private final int threads;
    private volatile boolean running = true;

    Querying(Load load, Arguments arguments) {
        this.load = load;
        count = arguments.number("count", 1);
        threads = arguments.number("threads", 8);
    }

    Map<String, Object> run() throws Exception {
        DefaultMQProducer asker = new DefaultMQProducer("load-askers");
        asker.setNamesrvAddr(load.namesrv);
        asker.start();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> askForever(asker)).start();
        }
        Thread.sleep(load.warmUpMs);
        load.meter.begin();
        Thread.sleep(load.windowMs);
        Map<String, Object> row = load.meter.end();
        running = false;
        return row;
    }

    private void askForever(DefaultMQProducer asker) {
        while (running) {
            String key = Load.key(1 + ThreadLocalRandom.current().nextLong(count));
            long begin = System.nanoTime();
            try {
                QueryResult found = asker.queryMessage(load.topic, key, MESSAGES_MAX, 0, Long.MAX_VALUE);
                if (found.getMessageList().size() == 1) {
                    load.meter.done(1, System.nanoTime() - begin);
                } else {
                    load.meter.failed();
                }
            } catch (Exception e) { // also when nothing was found
                load.meter.failed();
            }
        }
    }
}
