package cometmq.bench;

import java.io.File;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between Apache's releases: this is 4.9.7. */
final class Release {
    private Release() {
    }

    static DefaultMessageStore open(File root, StoreBench.Options options) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.getPath());
        config.setStorePathCommitLog(new File(root, "commitlog").getPath());
        config.setMappedFileSizeCommitLog(options.number("log"));
        config.setMappedFileSizeConsumeQueue(options.number("queue"));
        config.setMaxHashSlotNum(options.number("slots"));
        config.setMaxIndexNum(options.number("entries"));
        config.setTransientStorePoolEnable(options.number("pool") == 1);
        config.setHaListenPort(options.number("port"));
        if (options.number("sync") == 1) {
            config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        }
        return new DefaultMessageStore(
            config, new BrokerStatsManager("bench", true), (a, b, c, d, e, f, g) -> { }, new BrokerConfig());
    }

    static Object message(String topic, int queueId, byte[] body, Map<String, String> properties, String text) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, topic, queueId, body, properties);
        message.setPropertiesString(text);
        message.setTagsCode(properties.get("TAGS").hashCode());
        return message;
    }

    static Object batch(String topic, int queueId, byte[] body) {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, topic, queueId, body, new HashMap<>());
        return batch;
    }

    static void put(DefaultMessageStore store, Object message) {
        PutMessageResult result = message instanceof MessageExtBatch
            ? store.putMessages((MessageExtBatch) message)
            : store.putMessage((MessageExtBrokerInner) message);
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
    }

    static CompletableFuture<Boolean> putAsync(DefaultMessageStore store, Object message) {
        return store.asyncPutMessage((MessageExtBrokerInner) message)
            .thenApply(result -> result.getPutMessageStatus().name().equals("PUT_OK"));
    }

    static MessageFilter tagFilter(String tag) {
        SubscriptionData subscription = new SubscriptionData("bench", tag);
        subscription.getTagsSet().add(tag);
        subscription.getCodeSet().add(tag.hashCode());
        return new DefaultMessageFilter(subscription);
    }

    private static void fill(
        MessageExt message, String topic, int queueId, byte[] body, Map<String, String> properties) {
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(Messages.BORN_HOST);
        message.setStoreHost(Messages.STORE_HOST);
        MessageAccessor.setProperties(message, properties);
    }
}
