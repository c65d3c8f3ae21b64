package cometmq.vectors;

import cometmq.support.Json;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Whole frames as RemotingCommand encodes them, and what RemotingCommand reads back from them. */
final class CommandVectors {
    private static final String[] SOME_ODD = {"empty", "controls 00-1f", "emoji", "lone high surrogate", "html"};

    private final VectorFile file = new VectorFile();

    private CommandVectors() {
    }

    static VectorFile make() {
        CommandVectors vectors = new CommandVectors();
        vectors.plain();
        vectors.numbers();
        vectors.extFields();
        vectors.bodies();
        vectors.readOnly();
        return vectors.file;
    }

    private void plain() {
        both("no ext fields, no body", command(34));
        RemotingCommand empty = command(34);
        empty.setExtFields(new HashMap<>());
        both("empty ext fields", empty);
        RemotingCommand oneway = command(15);
        oneway.markOnewayRPC();
        both("oneway", oneway);
        RemotingCommand response = command(17);
        response.markResponseType();
        response.setRemark("No topic route info in name server for the topic: T");
        both("error response", response);
        for (String name : SOME_ODD) {
            RemotingCommand remark = command(1);
            remark.markResponseType();
            remark.setRemark(OddStrings.all().get(name));
            both("remark: " + name, remark);
        }
    }

    private void numbers() {
        int[] opaques = {0, -1, Integer.MIN_VALUE, Integer.MAX_VALUE};
        for (int opaque : opaques) {
            RemotingCommand command = command(11);
            command.setOpaque(opaque);
            both("opaque " + opaque, command);
        }
        int[] codes = {0, 32767, 32768, 200050, -1000};
        for (int code : codes) {
            both("code " + code, command(code));
        }
        int[] versions = {0, 32767};
        for (int version : versions) {
            RemotingCommand command = command(11);
            command.setVersion(version);
            both("version " + version, command);
        }
        RemotingCommand flags = command(11);
        flags.setFlag(0x7ffffff0);
        both("unknown flag bits", flags);
        for (LanguageCode language : LanguageCode.values()) {
            if (language.getCode() % 3 == 0) {
                RemotingCommand command = command(11);
                command.setLanguage(language);
                both("language " + language, command);
            }
        }
    }

    private void extFields() {
        RemotingCommand usual = command(310);
        usual.addExtField("a", "PG");
        usual.addExtField("b", "Topic");
        usual.addExtField("e", "3");
        usual.addExtField("g", "1700000000000");
        usual.addExtField("i", "KEYS\u0001k\u0002TAGS\u0001t\u0002");
        usual.addExtField("m", "false");
        both("ext: several", usual);
        for (Map.Entry<String, String> odd : OddStrings.all().entrySet()) {
            RemotingCommand value = command(310);
            value.addExtField("value", odd.getValue());
            both("ext value: " + odd.getKey(), value);
        }
        for (String name : SOME_ODD) {
            RemotingCommand key = command(310);
            key.addExtField(OddStrings.all().get(name), "v");
            key.addExtField("after", "w");
            both("ext key: " + name, key);
        }
        RemotingCommand nullValue = command(310);
        nullValue.addExtField("kept", "v");
        nullValue.addExtField("null", null);
        both("ext: null value", nullValue);
        RemotingCommand longValue = command(310);
        longValue.addExtField("i", OddStrings.repeat("0123456789", 50));
        both("ext: value of 500 bytes", longValue);
        RemotingCommand longKey = command(310);
        longKey.addExtField(OddStrings.repeat("k", 300), "v");
        both("ext: key of 300 bytes", longKey);
    }

    private void bodies() {
        byte[][] bodies = {{}, {0}, "body \u00e9".getBytes(StandardCharsets.UTF_8)};
        for (byte[] body : bodies) {
            RemotingCommand command = command(310);
            command.setBody(body);
            both("body of " + body.length + " bytes", command);
        }
    }

    /** JSON headers that Java does not write but other clients do: what does Java read from them? */
    private void readOnly() {
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("numbers and booleans in ext fields",
            "{\"code\":10,\"language\":\"CPP\",\"version\":63,\"opaque\":7,\"flag\":0,\"remark\":\"\","
            + "\"extFields\":{\"queueId\":3,\"offset\":9007199254740993,\"batch\":true,\"ratio\":0.5,"
            + "\"big\":1e3,\"none\":null,\"text\":\"x\"}}\n");
        headers.put("nested ext fields", "{\"code\":10,\"opaque\":1,\"extFields\":{\"o\":{\"b\":1,\"a\":[1,\"2\"]},\"l\":[]}}");
        headers.put("language as number", "{\"code\":10,\"language\":3,\"version\":1,\"opaque\":1,\"flag\":0}");
        headers.put("unknown language", "{\"code\":10,\"language\":\"COBOL\",\"opaque\":1}");
        headers.put("lower-case language", "{\"code\":10,\"language\":\"go\",\"opaque\":1}");
        headers.put("null members", "{\"code\":10,\"opaque\":1,\"language\":null,\"remark\":null,\"extFields\":null}");
        headers.put("numbers as text", "{\"code\":\"10\",\"opaque\":\"-5\",\"flag\":\"1\",\"version\":\"401\"}");
        headers.put("numbers as floats", "{\"code\":10.0,\"opaque\":5.9,\"flag\":1e0}");
        headers.put("opaque above int32", "{\"code\":10,\"opaque\":4294967297}");
        headers.put("only opaque", "{\"opaque\":1}");
        headers.put("unknown members", "{\"code\":10,\"zone\":{\"a\":[1,2,{}]},\"opaque\":2}");
        headers.put("duplicate member", "{\"code\":10,\"code\":11,\"opaque\":2}");
        headers.put("white space", " {\n\t\"code\" : 10 ,\r\n \"opaque\" : 2 } ");
        headers.put("single quotes", "{'code':10,'opaque':2,'extFields':{'a':'b'}}");
        headers.put("unquoted names", "{code:10,opaque:2,extFields:{a:\"b\",1:\"c\"}}");
        headers.put("comment", "{/* x */\"code\":10,\"opaque\":2}");
        headers.put("trailing comma", "{\"code\":10,\"opaque\":2,}");
        headers.put("text after the object", "{\"code\":10,\"opaque\":2}x");
        headers.put("escapes", "{\"code\":10,\"opaque\":1,\"remark\":\"\\u00e9\\ud83d\\ude00\\ud800\\/\\b\\x41\"}");
        headers.put("array", "[1]");
        headers.put("null", "null");
        headers.put("text", "\"x\"");
        headers.put("cut off", "{\"code\":10,\"opaq");
        for (Map.Entry<String, String> header : headers.entrySet()) {
            read("read: " + header.getKey(), header.getValue().getBytes(StandardCharsets.UTF_8));
        }
    }

    private void read(String name, byte[] header) {
        ByteBuffer frame = ByteBuffer.allocate(8 + header.length);
        frame.putInt(4 + header.length).putInt(header.length).put(header);
        Map<String, Object> vector = Json.object("name", name, "serialization", "JSON", "frame", frame.array());
        VectorFile.result(vector, "decoded", () -> decoded(frame.array()));
        file.add(vector);
    }

    private void both(String name, RemotingCommand command) {
        for (SerializeType type : SerializeType.values()) {
            command.setSerializeTypeCurrentRPC(type);
            List<Object> extFields = command.getExtFields() == null ? null : Json.pairs(command.getExtFields());
            Map<String, Object> vector = Json.object(
                "name", name,
                "serialization", type.name(),
                "command", fields(command, extFields));
            byte[][] frame = new byte[1][];
            VectorFile.result(vector, "frame", () -> frame[0] = bytes(command.encode()));
            if (frame[0] != null) {
                VectorFile.result(vector, "decoded", () -> decoded(frame[0]));
                vector.remove("decoded", fields(command, sortedExtFields(command)));
            }
            file.add(vector);
        }
    }

    private static Map<String, Object> decoded(byte[] frame) throws Exception {
        ByteBuffer afterLength = ByteBuffer.wrap(frame, 4, frame.length - 4).slice();
        RemotingCommand command = RemotingCommand.decode(afterLength);
        return command == null ? null : fields(command, sortedExtFields(command));
    }

    private static List<Object> sortedExtFields(RemotingCommand command) {
        if (command.getExtFields() == null) {
            return null;
        }
        Comparator<String> nullFirst = Comparator.nullsFirst(Comparator.naturalOrder());
        Map<String, String> sorted = new TreeMap<>(nullFirst);
        sorted.putAll(command.getExtFields());
        return Json.pairs(sorted);
    }

    private static Map<String, Object> fields(RemotingCommand command, List<Object> extFields) {
        return Json.object(
            "code", command.getCode(),
            "language", command.getLanguage() == null ? null : command.getLanguage().name(),
            "version", command.getVersion(),
            "opaque", command.getOpaque(),
            "flag", command.getFlag(),
            "remark", command.getRemark(),
            "extFields", extFields,
            "body", command.getBody() == null ? null : Base64.getEncoder().encodeToString(command.getBody()));
    }

    private static RemotingCommand command(int code) {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.setOpaque(42);
        command.setVersion(401);
        return command;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
