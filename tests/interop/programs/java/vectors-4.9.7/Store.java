package cometmq.vectors;

import java.nio.file.Path;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Apache's message store with a clock that stands still. It only appends: it is never started. */
final class Store implements AutoCloseable {
    final boolean hasPropertyCrc;
    private final DefaultMessageStore store;

    Store(Path folder, boolean hasPropertyCrc) throws Exception {
        this.hasPropertyCrc = hasPropertyCrc;
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder.toString());
        config.setStorePathCommitLog(folder.resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(1 << 16);
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager stats = new BrokerStatsManager("DefaultCluster", false);
        store = new DefaultMessageStore(config, stats, null, broker) {
            @Override
            public SystemClock getSystemClock() {
                return new SystemClock() {
                    @Override
                    public long now() {
                        return RecordVectors.STORE_TIME;
                    }
                };
            }
        };
        store.load();
    }

    byte[] put(RecordVectors.Input input) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        RecordVectors.describe(message, input);
        if (!input.noProperties) {
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        }
        PutMessageResult result = store.getCommitLog().asyncPutMessage(message).get();
        if (!result.isOk()) {
            throw new IllegalStateException(input.name + ": " + result);
        }
        SelectMappedBufferResult slice = store.getCommitLog().getMessage(
            result.getAppendMessageResult().getWroteOffset(), result.getAppendMessageResult().getWroteBytes());
        byte[] record = new byte[slice.getSize()];
        slice.getByteBuffer().get(record);
        slice.release();
        return record;
    }

    @Override
    public void close() {
        store.destroy();
    }
}
