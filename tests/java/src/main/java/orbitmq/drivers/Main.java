package orbitmq.drivers;

import java.util.Arrays;

/** One Java process of a live test: {@code Main <driver> --name value ...}, JSON rows on standard output. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) {
        int exitCode = 1;
        try {
            run(words);
            exitCode = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        System.exit(exitCode); // client libraries leave threads behind that are no daemons
    }

    static void run(String[] words) throws Exception {
        if (words.length == 0) {
            throw new IllegalArgumentException("which driver? send, fill, consume, litepull, pull, admin, mqadmin, stores, transactions, filter");
        }
        Arguments arguments = new Arguments(Arrays.copyOfRange(words, 1, words.length));
        switch (words[0]) {
            case "send" -> Send.run(arguments);
            case "fill" -> Fill.run(arguments);
            case "consume" -> Consume.run(arguments);
            case "litepull" -> LitePull.run(arguments);
            case "pull" -> Pull.run(arguments);
            case "admin" -> Admin.run(arguments);
            case "access" -> Access.run(arguments);
            case "stores" -> Stores.run(arguments);
            case "mqadmin" -> Mqadmin.run(arguments);
            case "transactions" -> Transactions.run(arguments);
            case "filter" -> Filter.run(arguments);
            case "requestreply" -> RequestReply.run(arguments);
            case "lightqueues" -> LightQueues.run(arguments);
            case "members" -> Members.run(arguments);
            case "jobs" -> Jobs.run();
            default -> throw new IllegalArgumentException("unknown driver " + words[0]);
        }
    }
}
