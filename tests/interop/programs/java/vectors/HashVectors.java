package cometmq.vectors;

import cometmq.support.Json;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;

/** String.hashCode, the UTF-8 Java makes of a string, and the masked CRC of those bytes. */
final class HashVectors {
    private HashVectors() {
    }

    static VectorFile make() {
        VectorFile file = new VectorFile();
        for (Map.Entry<String, String> odd : OddStrings.all().entrySet()) {
            byte[] utf8 = odd.getValue().getBytes(StandardCharsets.UTF_8);
            file.add(Json.object(
                "name", odd.getKey(),
                "text", odd.getValue(),
                "hash", odd.getValue().hashCode(),
                "utf8", utf8,
                "crc", UtilAll.crc32(utf8)));
        }
        return file;
    }
}
