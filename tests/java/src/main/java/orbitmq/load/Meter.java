package orbitmq.load;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import orbitmq.drivers.Rows;

/** Counts messages and their times inside one window, with the processor time that the broker spent meanwhile. */
final class Meter {
    private static final int STEPS = 64; // buckets a power of two: times are kept to 1.6 %
    private static final double TICKS_A_SECOND = 100; // of /proc/<pid>/stat on Linux

    private final long brokerPid;
    private final LongAdder count = new LongAdder();
    private final LongAdder errors = new LongAdder();
    private final AtomicLongArray times = new AtomicLongArray(64 * STEPS);
    private volatile boolean open;
    private long beginNanos;
    private double beginCpuSeconds;

    Meter(long brokerPid) {
        this.brokerPid = brokerPid;
    }

    void done(int messages, long nanos) {
        if (open) {
            count.add(messages);
            times.incrementAndGet(bucket(nanos));
        }
    }

    void failed() {
        errors.increment();
    }

    long errors() {
        return errors.sum();
    }

    void begin() throws IOException {
        beginCpuSeconds = cpuSeconds();
        beginNanos = System.nanoTime();
        open = true;
    }

    Map<String, Object> end() throws IOException {
        return end(-1);
    }

    /** The row of the window just ended; {@code messages} if something else than {@code done} counted them. */
    Map<String, Object> end(long messages) throws IOException {
        open = false;
        double seconds = (System.nanoTime() - beginNanos) / 1e9;
        double cpuSeconds = cpuSeconds() - beginCpuSeconds;
        long counted = messages < 0 ? count.sum() : messages;
        return Rows.row(
            "messages", counted, "seconds", seconds, "rate", counted / seconds,
            "cpuMicros", counted == 0 ? null : cpuSeconds * 1e6 / counted,
            "p50Micros", percentile(0.50), "p99Micros", percentile(0.99), "p999Micros", percentile(0.999),
            "errors", errors.sum());
    }

    private static int bucket(long nanos) {
        long value = Math.max(nanos, STEPS);
        int power = 63 - Long.numberOfLeadingZeros(value);
        int step = (int) (value >>> (power - 6)) - STEPS;
        return power * STEPS + step;
    }

    private Double percentile(double share) {
        long total = 0;
        for (int i = 0; i < times.length(); i++) {
            total += times.get(i);
        }
        long left = (long) Math.ceil(total * share);
        for (int i = 0; i < times.length(); i++) {
            left -= times.get(i);
            if (left <= 0 && total > 0) {
                return (STEPS + i % STEPS) * Math.pow(2, i / STEPS - 6) / 1e3;
            }
        }
        return null;
    }

    private double cpuSeconds() throws IOException {
        String stat = Files.readString(Path.of("/proc/" + brokerPid + "/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS_A_SECOND;
    }
}
