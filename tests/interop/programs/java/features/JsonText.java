package cometmq.features;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the JSON of commands: objects, arrays, texts, whole numbers, true, false and null. */
final class JsonText {
    private final String text;
    private int position;

    private JsonText(String text) {
        this.text = text;
    }

    static Object read(String text) {
        JsonText reader = new JsonText(text);
        Object value = reader.value();
        reader.skipBlanks();
        if (reader.position != text.length()) {
            throw reader.wrong("something after the end");
        }
        return value;
    }

    private Object value() {
        skipBlanks();
        char first = text.charAt(position);
        switch (first) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> members = new LinkedHashMap<>();
        position++;
        while (!isNext('}')) {
            skipBlanks();
            String name = string();
            if (!isNext(':')) {
                throw wrong("no colon");
            }
            members.put(name, value());
            isNext(',');
        }
        return members;
    }

    private List<Object> array() {
        List<Object> items = new ArrayList<>();
        position++;
        while (!isNext(']')) {
            items.add(value());
            isNext(',');
        }
        return items;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        position++;
        while (text.charAt(position) != '"') {
            out.append(text.charAt(position) == '\\' ? escaped() : text.charAt(position));
            position++;
        }
        position++;
        return out.toString();
    }

    private char escaped() {
        position++;
        char kind = text.charAt(position);
        switch (kind) {
            case 'u':
                position += 4;
                return (char) Integer.parseInt(text.substring(position - 3, position + 1), 16);
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            default:
                return kind;
        }
    }

    private Long number() {
        int begin = position;
        while (position < text.length() && "-0123456789".indexOf(text.charAt(position)) >= 0) {
            position++;
        }
        if (begin == position) {
            throw wrong("no value");
        }
        return Long.valueOf(text.substring(begin, position));
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, position)) {
            throw wrong("no value");
        }
        position += word.length();
        return value;
    }

    /** Goes past {@code expected} if that is what comes next. */
    private boolean isNext(char expected) {
        skipBlanks();
        boolean found = position < text.length() && text.charAt(position) == expected;
        position += found ? 1 : 0;
        return found;
    }

    private void skipBlanks() {
        while (position < text.length() && Character.isWhitespace(text.charAt(position))) {
            position++;
        }
    }

    private IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException(what + " at " + position + " of " + text);
    }
}
