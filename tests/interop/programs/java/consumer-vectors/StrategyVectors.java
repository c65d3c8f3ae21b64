package cometmq.consumers;

import cometmq.support.Json;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** The share of every member of chosen groups, and of one that is no member, by each strategy. */
final class StrategyVectors {
    private static final String STRANGER = "stranger";

    private StrategyVectors() {
    }

    static List<Map<String, Object>> make() {
        List<Map<String, Object>> vectors = new ArrayList<>();
        for (Map.Entry<String, AllocateMessageQueueStrategy> strategy : strategies().entrySet()) {
            for (List<MessageQueue> queues : queueLists()) {
                for (List<String> ids : idLists()) {
                    vectors.add(shares(strategy.getKey(), strategy.getValue(), queues, ids));
                }
            }
            List<MessageQueue> queues = queues("broker-a", 2);
            vectors.add(share(strategy.getKey(), strategy.getValue(), "", queues, Arrays.asList("a")));
            vectors.add(share(strategy.getKey(), strategy.getValue(), "a", new ArrayList<>(), Arrays.asList("a")));
            vectors.add(share(strategy.getKey(), strategy.getValue(), "a", queues, new ArrayList<>()));
        }
        return vectors;
    }

    private static Map<String, AllocateMessageQueueStrategy> strategies() {
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("average", new AllocateMessageQueueAveragely());
        strategies.put("circle", new AllocateMessageQueueAveragelyByCircle());
        AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
        config.setMessageQueueList(queues("broker-z", 2));
        strategies.put("config", config);
        AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
        room.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r2")));
        strategies.put("room", room);
        strategies.put("nearby average", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms()));
        strategies.put("nearby circle",
            new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), new Rooms()));
        strategies.put("hash", new AllocateMessageQueueConsistentHash());
        strategies.put("hash of 3", new AllocateMessageQueueConsistentHash(3));
        return strategies;
    }

    private static List<List<MessageQueue>> queueLists() {
        List<List<MessageQueue>> lists = new ArrayList<>();
        for (int count : new int[] {1, 4, 8, 17}) {
            lists.add(queues("broker-a", count));
        }
        List<MessageQueue> rooms = new ArrayList<>();
        for (String broker : new String[] {"r1@a", "r1@b", "r2@c", "r3@d", "r3@e@", "r1@f@g"}) {
            rooms.addAll(queues(broker, 3));
        }
        lists.add(rooms);
        List<MessageQueue> odd = new ArrayList<>();
        for (String broker : new String[] {"r2@\ud83d\ude00", "r1@z@@", "r3@\uff21", "r1@\u6d88"}) {
            odd.addAll(queues(broker, 2));
        }
        lists.add(odd);
        List<MessageQueue> backwards = queues("r2@x", 5);
        Collections.reverse(backwards);
        lists.add(backwards);
        lists.add(Arrays.asList(new MessageQueue("orders", "r1@", 0), new MessageQueue("orders", "r1@a", 0)));
        return lists;
    }

    private static List<List<String>> idLists() {
        List<List<String>> lists = new ArrayList<>();
        lists.add(Arrays.asList("a"));
        lists.add(Arrays.asList("r1-a", "r1-b", "r2-c"));
        lists.add(Arrays.asList("r1-10.0.0.1@7#12", "r2-10.0.0.2@7#13", "r2-10.0.0.3@8", "r3-x", "r4-y"));
        lists.add(Arrays.asList("r2-b", "r1-a"));
        lists.add(Arrays.asList("r1-a", "r1-a", "r2-b"));
        lists.add(Arrays.asList("\u6d88-a", "\ud83d\ude00-b", "\uffee-c"));
        return lists;
    }

    private static List<MessageQueue> queues(String broker, int count) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int id = 0; id < count; id++) {
            queues.add(new MessageQueue("orders", broker, id));
        }
        return queues;
    }

    private static Map<String, Object> shares(
        String name, AllocateMessageQueueStrategy strategy, List<MessageQueue> queues, List<String> ids) {
        Map<String, Object> shares = new LinkedHashMap<>();
        TreeSet<String> members = new TreeSet<>(ids);
        members.add(STRANGER);
        for (String id : members) {
            shares.put(id, allocated(strategy, id, queues, ids));
        }
        return Json.object("strategy", name, "name", strategy.getName(), "queues", shown(queues), "ids", ids,
            "shares", shares);
    }

    private static Map<String, Object> share(String name, AllocateMessageQueueStrategy strategy, String id,
        List<MessageQueue> queues, List<String> ids) {
        return Json.object("strategy", name, "name", strategy.getName(), "queues", shown(queues), "ids", ids,
            "shares", Json.object(id, allocated(strategy, id, queues, ids)));
    }

    private static Object allocated(
        AllocateMessageQueueStrategy strategy, String id, List<MessageQueue> queues, List<String> ids) {
        try {
            return shown(strategy.allocate("group", id, queues, ids));
        } catch (RuntimeException failure) {
            return failure.getClass().getSimpleName();
        }
    }

    private static List<Object> shown(List<MessageQueue> queues) {
        List<Object> shown = new ArrayList<>();
        queues.forEach(queue -> shown.add(queue.getBrokerName() + ":" + queue.getQueueId()));
        return shown;
    }

    /** A queue's room is before the "@" of its broker, a client's before the "-" of its id. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String id) {
            return id.contains("-") ? id.split("-")[0] : "";
        }
    }
}
