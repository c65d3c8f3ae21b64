package cometmq.vectors;

import java.util.LinkedHashMap;
import java.util.Map;

/** Strings that codecs get wrong. The key says what is odd about each. */
final class OddStrings {
    private OddStrings() {
    }

    static Map<String, String> all() {
        Map<String, String> strings = new LinkedHashMap<>();
        strings.put("empty", "");
        strings.put("ascii", "TagA || TagB");
        strings.put("controls 00-1f", range(0x00, 0x20));
        strings.put("printable ascii", range(0x20, 0x7f));
        strings.put("7f-9f", range(0x7f, 0xa0));
        strings.put("latin a0-af", range(0xa0, 0xb0));
        strings.put("chinese", "\u6d88\u606f\u961f\u5217");
        strings.put("combining", "e\u0301 and \u00e9");
        strings.put("line separators", "a\u2028b\u2029c");
        strings.put("emoji", "\ud83d\ude00 ok \ud83d\udc69\u200d\ud83d\ude80");
        strings.put("highest code point", "\udbff\udfff");
        strings.put("byte order mark", "\ufeffx");
        strings.put("noncharacters", "\ufffe\uffff");
        strings.put("2020-202f", range(0x2020, 0x2030));
        strings.put("html", "</script><b>&amp;'\"/\\");
        strings.put("backslashes", "\\ \\\\ \\u0041 \\n");
        strings.put("lone high surrogate", "a\ud800b");
        strings.put("lone low surrogate", "a\udc00b");
        strings.put("high surrogate at the end", "a\ud83d");
        strings.put("surrogates swapped", "\ude00\ud83d");
        strings.put("separators", "\u0001\u0002");
        strings.put("numeric", "0123");
        strings.put("hash is zero", "\u0000\u0000");
        strings.put("hash is lowest int", "polygenelubricants");
        strings.put("hash wraps", repeat("\uffff", 20));
        return strings;
    }

    static String repeat(String text, int times) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < times; i++) {
            out.append(text);
        }
        return out.toString();
    }

    private static String range(int begin, int end) {
        StringBuilder out = new StringBuilder();
        for (int unit = begin; unit < end; unit++) {
            out.append((char) unit);
        }
        return out.toString();
    }
}
