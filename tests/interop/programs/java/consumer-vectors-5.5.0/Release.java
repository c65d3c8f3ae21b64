package cometmq.consumers;

import cometmq.support.Json;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.remoting.protocol.body.ProcessQueueInfo;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/** What has another package in other releases. */
final class Release {
    private Release() {
    }

    static Map<String, Object> subscription(String topic, String expression) {
        Map<String, Object> vector = Json.object("expression", expression);
        try {
            SubscriptionData data = FilterAPI.buildSubscriptionData(topic, expression);
            vector.put("text", data.getSubString());
            vector.put("tags", new ArrayList<>(new TreeSet<>(data.getTagsSet())));
            vector.put("codes", new ArrayList<>(new TreeSet<>(data.getCodeSet())));
            vector.put("type", data.getExpressionType());
        } catch (Exception failure) {
            vector.put("error", failure.getClass().getSimpleName());
        }
        return vector;
    }

    /** First, last and count of what is cached, then of what is handed over. */
    static List<Object> queueInfo(ProcessQueue queue) {
        ProcessQueueInfo info = new ProcessQueueInfo();
        queue.fillProcessQueueInfo(info);
        return Arrays.asList(info.getCachedMsgMinOffset(), info.getCachedMsgMaxOffset(), info.getCachedMsgCount(),
            info.getTransactionMsgMinOffset(), info.getTransactionMsgMaxOffset(), info.getTransactionMsgCount());
    }
}
