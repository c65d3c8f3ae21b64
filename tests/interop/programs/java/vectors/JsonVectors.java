package cometmq.vectors;

import cometmq.support.Json;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** What RemotingSerializable writes for values, maps and the bodies that Apache's servers send. */
final class JsonVectors {
    private final VectorFile file = new VectorFile();

    private JsonVectors() {
    }

    static VectorFile make() {
        JsonVectors vectors = new JsonVectors();
        vectors.strings();
        vectors.numbers();
        vectors.otherValues();
        vectors.maps();
        vectors.references();
        for (Map.Entry<String, RemotingSerializable> body : Bodies.all().entrySet()) {
            vectors.body(body.getKey(), body.getValue());
        }
        Bodies.standardForms().forEach((name, bytes) -> vectors.file.add("name", name, "encoded", bytes));
        return vectors.file;
    }

    private void strings() {
        for (Map.Entry<String, String> odd : OddStrings.all().entrySet()) {
            add("string: " + odd.getKey(), odd.getValue(), odd.getValue());
        }
        for (String name : new String[] {"empty", "controls 00-1f", "7f-9f", "emoji", "html", "lone high surrogate"}) {
            String odd = OddStrings.all().get(name);
            add("key: " + name, odd, Collections.singletonMap(odd, 1));
        }
    }

    private void numbers() {
        double[] doubles = {0.0, -0.0, 1.0, 100.0, 0.1, 0.001, 1.0E-4, 1.0E-5, 1234567.0, 1.0E7, 12345678.9, 1.0E10,
            123456789.125, 1.0E15, 1.0E16, 1.0E17, 9007199254740993.0, 1.0E20, 1.0E21, 1.0E22, 1.0E-7, 1.0E23,
            2.0E-3, 0.30000000000000004, Math.PI, Double.MIN_VALUE, Double.MAX_VALUE, 4.9E-320,
            Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY};
        for (double value : doubles) {
            add("double", Double.toHexString(value), value);
        }
        float[] floats = {0.0f, 1.5f, 0.1f, 1.0E10f, 1.0E-5f, Float.MAX_VALUE, Float.MIN_VALUE, Float.NaN};
        for (float value : floats) {
            add("float", Float.toHexString(value), value);
        }
        long[] longs = {0, -1, Integer.MAX_VALUE, 9007199254740993L, Long.MAX_VALUE, Long.MIN_VALUE};
        for (long value : longs) {
            add("long", Long.toString(value), value);
        }
        add("BigInteger", "2^80", BigInteger.ONE.shiftLeft(80));
        add("BigDecimal", "1E+30", new BigDecimal("1E+30"));
        add("BigDecimal", "0.10", new BigDecimal("0.10"));
        add("AtomicLong", "7", new AtomicLong(7));
        add("AtomicInteger", "-7", new AtomicInteger(-7));
    }

    private void otherValues() {
        add("null", null, (Object) null);
        add("boolean", "true", true);
        add("char", "x", 'x');
        add("enum", "GO", LanguageCode.GO);
        add("byte[]", "00ff41", new byte[] {0, (byte) 0xff, 0x41});
        add("int[]", "1 2", new int[] {1, 2});
        add("list", "with null", Arrays.asList(1, null, "x", new ArrayList<>(), new HashMap<>()));
    }

    private void maps() {
        Map<Object, Object> nulls = new LinkedHashMap<>();
        nulls.put("a", null);
        nulls.put("b", 1);
        add("map", "null value", nulls);
        add("map", "null key", Collections.singletonMap(null, 1));
        add("map", "Integer keys", ordered(2, "two", -1, "minus one", 10, "ten"));
        add("map", "Long keys", ordered(0L, "127.0.0.1:10911", 1L, "127.0.0.1:10921"));
        add("map", "Boolean keys", ordered(true, 1, false, 0));
        add("map", "Double keys", ordered(1.5, 1, 1.0E10, 2));
        add("map", "enum keys", ordered(LanguageCode.JAVA, 1));
        add("map", "list keys", ordered(Arrays.asList(1, 2), 1));
        add("map", "MessageQueue keys", ordered(
            new MessageQueue("T", "broker-a", 0), 17L, new MessageQueue("\u6d88\ud83d\ude00", "b\"", 1), 18L));
        add("map", "map keys", ordered(ordered("a", 1), 2));
        add("map", "nested Integer keys", ordered("T@g", ordered(0, 250, 1, 251), "U@g", ordered(0, 1)));
        add("map", "empty", new HashMap<>());
        add("map", "unsorted text keys", ordered("b", 1, "a", 2, "B", 3, "", 4));
    }

    private void references() {
        Map<Object, Object> shared = ordered("x", 1);
        add("reference", "same map twice in a list", Arrays.asList(shared, shared));
        add("reference", "same map twice in a map", ordered("a", shared, "b", shared, "c", ordered("d", shared)));
        List<Object> list = new ArrayList<>(Arrays.asList(1, 2));
        add("reference", "same list twice", ordered("a", list, "b", list));
        MessageQueue queue = new MessageQueue("T", "broker-a", 0);
        add("reference", "same MessageQueue twice", Arrays.asList(queue, queue));
        add("reference", "equal but different", Arrays.asList(ordered("x", 1), ordered("x", 1)));
        Map<Object, Object> self = new LinkedHashMap<>();
        self.put("self", self);
        add("reference", "to itself", self);
        Map<Object, Object> parent = new LinkedHashMap<>();
        parent.put("child", ordered("parent", parent));
        add("reference", "to its parent", parent);
    }

    private void add(String name, String input, Object value) {
        Map<String, Object> vector = Json.object("name", name, "input", input);
        VectorFile.result(vector, "encoded", () -> RemotingSerializable.encode(value));
        VectorFile.result(vector, "pretty", () -> utf8(RemotingSerializable.toJson(value, true)));
        if (vector.get("pretty") != null && Arrays.equals((byte[]) vector.get("pretty"), (byte[]) vector.get("encoded"))) {
            vector.remove("pretty");
        }
        file.add(vector);
    }

    private void body(String name, RemotingSerializable body) {
        file.add("name", name, "encoded", body.encode(), "pretty", utf8(body.toJson(true)));
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Map<Object, Object> ordered(Object... keysAndValues) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            map.put(keysAndValues[i], keysAndValues[i + 1]);
        }
        return map;
    }
}
