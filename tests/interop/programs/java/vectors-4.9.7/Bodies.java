package cometmq.vectors;

import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.body.KVTable;
import org.apache.rocketmq.common.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.common.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Bodies as servers and clients of this release send them, filled with fixed values. */
final class Bodies {
    private Bodies() {
    }

    static Map<String, RemotingSerializable> all() {
        Map<String, RemotingSerializable> bodies = new LinkedHashMap<>();
        bodies.put("TopicRouteData", route());
        bodies.put("ClusterInfo", cluster());
        bodies.put("TopicStatsTable", topicStats());
        bodies.put("ConsumeStats", consumeStats());
        bodies.put("ResetOffsetBody", resetOffset());
        bodies.put("KVTable", table());
        bodies.put("LockBatchRequestBody", lock());
        bodies.put("HeartbeatData", heartbeat());
        bodies.put("TopicConfigSerializeWrapper", topics());
        return bodies;
    }

    /** The route as the name server writes it for clients that want standard JSON. */
    static Map<String, byte[]> standardForms() {
        return Collections.singletonMap("TopicRouteData, standard", route().encode(
            SerializerFeature.BrowserCompatible,
            SerializerFeature.QuoteFieldNames,
            SerializerFeature.SkipTransientField,
            SerializerFeature.MapSortField));
    }

    private static TopicRouteData route() {
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setReadQueueNums(8);
        queues.setWriteQueueNums(4);
        queues.setPerm(6);
        TopicRouteData route = new TopicRouteData();
        route.setOrderTopicConf("broker-a:4;\u6d88\ud83d\ude00:1");
        route.setQueueDatas(Collections.singletonList(queues));
        route.setBrokerDatas(Arrays.asList(broker("broker-a"), broker("\u6d88</b>")));
        route.setFilterServerTable(new HashMap<>());
        route.getFilterServerTable().put("127.0.0.1:10911", Collections.singletonList("127.0.0.1:30000"));
        return route;
    }

    private static BrokerData broker(String name) {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(1L, "10.0.0.6:10911");
        addresses.put(0L, "10.0.0.5:10911");
        addresses.put(12L, "10.0.0.7:10911");
        return new BrokerData("DefaultCluster", name, addresses);
    }

    private static ClusterInfo cluster() {
        ClusterInfo cluster = new ClusterInfo();
        cluster.setBrokerAddrTable(new HashMap<>());
        cluster.getBrokerAddrTable().put("broker-a", broker("broker-a"));
        cluster.setClusterAddrTable(new HashMap<>());
        cluster.getClusterAddrTable().put("DefaultCluster", new LinkedHashSet<>(Arrays.asList("broker-b", "broker-a")));
        return cluster;
    }

    private static TopicStatsTable topicStats() {
        TopicStatsTable stats = new TopicStatsTable();
        for (int queue = 0; queue < 2; queue++) {
            TopicOffset offset = new TopicOffset();
            offset.setMaxOffset(100 + queue);
            offset.setLastUpdateTimestamp(1_700_000_000_000L);
            stats.getOffsetTable().put(new MessageQueue("T", "broker-a", queue), offset);
        }
        return stats;
    }

    private static ConsumeStats consumeStats() {
        ConsumeStats stats = new ConsumeStats();
        stats.setConsumeTps(0.1);
        OffsetWrapper offset = new OffsetWrapper();
        offset.setBrokerOffset(9);
        offset.setConsumerOffset(7);
        offset.setLastTimestamp(1_700_000_000_000L);
        stats.getOffsetTable().put(new MessageQueue("T", "broker-a", 0), offset);
        return stats;
    }

    private static ResetOffsetBody resetOffset() {
        ResetOffsetBody body = new ResetOffsetBody();
        body.setOffsetTable(new HashMap<>());
        body.getOffsetTable().put(new MessageQueue("T", "broker-a", 0), 17L);
        body.getOffsetTable().put(new MessageQueue("T", "broker-a", 1), 18L);
        return body;
    }

    private static KVTable table() {
        KVTable table = new KVTable();
        table.getTable().put("a=b", "line\nfeed");
        table.getTable().put("\u6d88", "");
        return table;
    }

    private static LockBatchRequestBody lock() {
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setClientId("10.0.0.5@4242");
        body.setConsumerGroup("G");
        body.getMqSet().add(new MessageQueue("T", "broker-a", 0));
        return body;
    }

    private static HeartbeatData heartbeat() {
        SubscriptionData subscription = new SubscriptionData("T", "TagA || TagB");
        subscription.setSubVersion(1_700_000_000_000L);
        subscription.getTagsSet().addAll(Arrays.asList("TagA", "TagB"));
        subscription.getCodeSet().addAll(Arrays.asList("TagA".hashCode(), "TagB".hashCode()));
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("G");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.getSubscriptionDataSet().add(subscription);
        ProducerData producer = new ProducerData();
        producer.setGroupName("PG");
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.5@4242");
        heartbeat.getConsumerDataSet().add(consumer);
        heartbeat.getProducerDataSet().add(producer);
        return heartbeat;
    }

    private static TopicConfigSerializeWrapper topics() {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.getTopicConfigTable().put("T", new TopicConfig("T", 8, 4, 6));
        topics.getDataVersion().setTimestamp(1_700_000_000_000L);
        topics.getDataVersion().setCounter(new AtomicLong(3));
        return topics;
    }
}
