package orbitmq.drivers;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The stock mqadmin, many commands in one process: a JVM takes longer to start than a command to run. Reads the file
 * --commands as it grows, one command a line: a number and the words, separated by tabs. A row tells what it printed. The line "end" ends the process.
 */
final class Mqadmin {
    private static final ThreadLocal<ByteArrayOutputStream> PRINTED = new ThreadLocal<>();
    private static final long POLL_MS = 10;

    private Mqadmin() {
    }

    static void run(Arguments arguments) throws Exception {
        prepareHome(Path.of(System.getProperty("rocketmq.home.dir")));
        PrintStream splitter = new PrintStream(new Splitter(), true, StandardCharsets.UTF_8);
        System.setOut(splitter);
        System.setErr(splitter);
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try (RandomAccessFile file = new RandomAccessFile(arguments.text("commands"), "r")) {
            for (String line = next(file); !line.equals("end"); line = next(file)) {
                String[] words = line.split("\t");
                pool.submit(() -> command(words[0], Arrays.copyOfRange(words, 1, words.length)));
            }
        }
        pool.shutdown();
    }

    private static void prepareHome(Path home) throws Exception {
        Path settings = home.resolve("conf/logback_tools.xml"); // 4.9 does nothing without it
        Files.createDirectories(settings.getParent());
        try (InputStream logging = Mqadmin.class.getResourceAsStream("/logback.xml")) {
            Files.write(settings, logging.readAllBytes());
        }
    }

    private static void command(String number, String[] words) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PRINTED.set(printed);
        long begun = System.currentTimeMillis();
        try {
            forgetCommands();
            MQAdminStartup.main0(words, null);
        } catch (Throwable e) {
            e.printStackTrace();
        }
        PRINTED.remove();
        Rows.print(Rows.row("number", Integer.valueOf(number), "printed", printed.toString(StandardCharsets.UTF_8),
            "milliseconds", System.currentTimeMillis() - begun));
    }

    /** Some commands work once only; main0 makes them anew. Their collection has another name in 5.x. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Collection.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((Collection<?>) field.get(null)).clear();
            }
        }
    }

    /** A whole line, as soon as it is there. */
    private static String next(RandomAccessFile file) throws Exception {
        while (true) {
            long start = file.getFilePointer();
            byte[] rest = new byte[(int) (file.length() - start)];
            file.readFully(rest);
            for (int i = 0; i < rest.length; i++) {
                if (rest[i] == '\n') {
                    file.seek(start + i + 1);
                    return new String(rest, 0, i, StandardCharsets.UTF_8);
                }
            }
            file.seek(start);
            Thread.sleep(POLL_MS);
        }
    }

    /** Gives each thread's output to the command it runs. */
    private static final class Splitter extends OutputStream {
        @Override
        public void write(int b) {
            ByteArrayOutputStream printed = PRINTED.get();
            if (printed != null) {
                printed.write(b);
            }
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            ByteArrayOutputStream printed = PRINTED.get();
            if (printed != null) {
                printed.write(bytes, offset, length);
            }
        }
    }
}
