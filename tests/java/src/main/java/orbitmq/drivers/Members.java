package orbitmq.drivers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Members of many groups in one process, told line by line on standard input what to do:
 * {@code join --member m --namesrv n --group g --topic t --kind push|orderly|lite --strategy s --instance i} with
 * {@code --queues broker:id,...} for the strategy CONFIG, and {@code leave --member m}. The end of the input ends it.
 * A pushed member is well unless {@code --trouble} says hang, fail (with every message), suspended (with its first
 * message) or unsubscribed.
 * Members of one name server share a client under their instance name, which begins with the room they are in.
 * Rows: events joined and left, event queues whenever the queues of a member change, event message for each delivery.
 * tests/support/python_members.py does the same with orbitmq's client.
 */
final class Members {
    private static final String HOST = "127.0.0.1";
    private static final int QUEUES_MAX = 8; // a lite pull consumer holds a thread for each queue it waits at
    private static final long LOOK_MS = 20;
    private static final int PERSIST_MS = 1000;
    private static final int BEAT_MS = 1000; // a group that starts while the client beats is told with the next beat only

    private final Map<String, Member> members = new ConcurrentHashMap<>();

    static void run(Arguments arguments) throws Exception {
        Members all = new Members();
        Thread watch = new Thread(all::watch);
        watch.setDaemon(true);
        watch.start();
        Rows.event("started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Arguments told = new Arguments(List.of(words).subList(1, words.length).toArray(new String[0]));
            if (words[0].equals("join")) {
                all.join(told);
            } else {
                all.leave(told.text("member"));
            }
        }
    }

    private void join(Arguments told) throws Exception {
        String name = told.text("member");
        Member member = told.text("kind").equals("lite") ? new Pulling(told) : new Pushed(told);
        member.start();
        members.put(name, member);
        Rows.event("joined", "member", name, "clientId", member.clientId());
    }

    private void leave(String name) throws Exception {
        members.remove(name).stop();
        report(name, Set.of());
        Rows.event("left", "member", name);
    }

    private void watch() {
        Map<String, Set<String>> known = new ConcurrentHashMap<>();
        while (true) {
            for (Map.Entry<String, Member> entry : members.entrySet()) {
                Set<String> queues = entry.getValue().queues();
                if (!queues.equals(known.put(entry.getKey(), queues)) && members.containsKey(entry.getKey())) {
                    report(entry.getKey(), queues);
                }
            }
            known.keySet().retainAll(members.keySet());
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static void report(String name, Set<String> queues) {
        Rows.event("queues", "member", name, "queues", queues, "at", System.currentTimeMillis());
    }

    private static AllocateMessageQueueStrategy strategy(Arguments told) {
        switch (told.text("strategy")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(told));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(Set.of("east", "west"));
                return rooms;
            case "MACHINE_ROOM_NEARBY-AVG":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            default:
                throw new IllegalArgumentException("unknown strategy " + told.text("strategy"));
        }
    }

    private static List<MessageQueue> queues(Arguments told) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String queue : told.text("queues").split(",")) {
            String[] parts = queue.split(":");
            queues.add(new MessageQueue(told.text("topic"), parts[0], Integer.parseInt(parts[1])));
        }
        return queues;
    }

    /** Brokers are named room@name, clients host@room-name. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[1].split("-")[0];
        }
    }

    /** One member of one group. */
    private abstract static class Member {
        final Arguments told;

        Member(Arguments told) {
            this.told = told;
        }

        abstract void start() throws Exception;

        abstract void stop() throws Exception;

        abstract String clientId();

        abstract Set<MessageQueue> assigned() throws Exception;

        /** Of the topic alone, without the retry topic. */
        Set<String> queues() {
            try {
                Set<String> queues = new TreeSet<>();
                for (MessageQueue queue : new HashSet<>(assigned())) {
                    if (queue.getTopic().equals(told.text("topic"))) {
                        queues.add(queue.getBrokerName() + ":" + queue.getQueueId());
                    }
                }
                return queues;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        void got(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                Rows.event("message", "member", told.text("member"),
                    "queue", message.getBrokerName() + ":" + message.getQueueId(), "offset", message.getQueueOffset(),
                    "at", System.currentTimeMillis());
            }
        }
    }

    private static final class Pushed extends Member {
        private final DefaultMQPushConsumer consumer;

        Pushed(Arguments told) {
            super(told);
            consumer = new DefaultMQPushConsumer(told.text("group"), null, strategy(told));
        }

        @Override
        void start() throws Exception {
            consumer.setNamesrvAddr(told.text("namesrv"));
            consumer.setClientIP(HOST);
            consumer.setInstanceName(told.text("instance"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(2);
            consumer.setConsumeThreadMax(2);
            consumer.setPersistConsumerOffsetInterval(PERSIST_MS);
            consumer.setHeartbeatBrokerInterval(BEAT_MS);
            if (!isIn("unsubscribed")) {
                consumer.subscribe(told.text("topic"), "*");
            }
            if (told.text("kind").equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    return finishes(messages)
                        ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    return finishes(messages)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
            consumer.start();
        }

        private boolean isIn(String trouble) {
            return told.text("trouble", "").equals(trouble);
        }

        private boolean finishes(List<MessageExt> messages) {
            got(messages);
            if (isIn("suspended")) {
                consumer.suspend(); // not before: it would take no queue
            }
            while (isIn("hang")) {
                LockSupport.parkNanos(TimeUnit.HOURS.toNanos(1));
            }
            return !isIn("fail");
        }

        @Override
        void stop() {
            consumer.shutdown();
        }

        @Override
        String clientId() {
            return consumer.buildMQClientId();
        }

        @Override
        Set<MessageQueue> assigned() {
            return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
        }
    }

    private static final class Pulling extends Member {
        private static final int POLL_MS = 100;

        private final DefaultLitePullConsumer consumer;
        private final Thread reader = new Thread(this::read);
        private volatile boolean leaving;

        Pulling(Arguments told) {
            super(told);
            consumer = new DefaultLitePullConsumer(told.text("group"));
            consumer.setAllocateMessageQueueStrategy(strategy(told));
        }

        @Override
        void start() throws Exception {
            consumer.setNamesrvAddr(told.text("namesrv"));
            consumer.setClientIP(HOST);
            consumer.setInstanceName(told.text("instance"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPullThreadNums(QUEUES_MAX);
            consumer.setPersistConsumerOffsetInterval(PERSIST_MS);
            consumer.setHeartbeatBrokerInterval(BEAT_MS);
            consumer.setAutoCommitIntervalMillis(PERSIST_MS);
            consumer.subscribe(told.text("topic"), "*");
            consumer.start();
            reader.setDaemon(true);
            reader.start();
        }

        private void read() {
            while (!leaving) {
                got(consumer.poll(POLL_MS));
            }
        }

        @Override
        void stop() throws Exception {
            leaving = true;
            reader.join();
            consumer.commitSync(); // what poll returned last; shutdown alone would not
            consumer.shutdown();
        }

        @Override
        String clientId() {
            return consumer.buildMQClientId();
        }

        @Override
        Set<MessageQueue> assigned() throws Exception {
            return consumer.assignment();
        }
    }
}
