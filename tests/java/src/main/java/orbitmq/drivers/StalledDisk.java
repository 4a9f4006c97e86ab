package orbitmq.drivers;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;

/** A broker whose disk takes nothing of the commit log as long as the file named by {@code orbitmq.stalled} exists. */
public final class StalledDisk {
    private StalledDisk() {
    }

    public static void main(String[] words) throws Exception {
        BrokerController controller = BrokerStartup.createBrokerController(words);
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        Field files = CommitLog.class.getDeclaredField("mappedFileQueue");
        files.setAccessible(true);
        MappedFileQueue real = (MappedFileQueue) files.get(store.getCommitLog());
        String directory = store.getMessageStoreConfig().getStorePathCommitLog();
        files.set(store.getCommitLog(), new Queue(real, directory, store, Path.of(System.getProperty("orbitmq.stalled"))));
        BrokerStartup.start(controller);
    }

    /** The same files; a flush waits until the disk goes on. */
    private static final class Queue extends MappedFileQueue {
        private final Path stalled;

        Queue(MappedFileQueue real, String directory, DefaultMessageStore store, Path stalled) {
            super(directory, real.getMappedFileSize(), store.getAllocateMappedFileService());
            this.stalled = stalled;
            mappedFiles.addAll(real.getMappedFiles());
            setFlushedWhere(real.getFlushedWhere());
            setCommittedWhere(real.getCommittedWhere());
        }

        @Override
        public boolean flush(int leastPages) {
            while (Files.exists(stalled)) {
                try {
                    Thread.sleep(5);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    return false;
                }
            }
            return super.flush(leastPages);
        }
    }
}
