package cometmq.consumers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** What becomes of expressions with tags. */
final class SubscriptionVectors {
    private static final String[] EXPRESSIONS = {
        null, "", "*", " ", "\t", " *", "a", " a ", "a||b", "a || b", "a||b||", "||a", "a||||b", "a|b", "a|||b",
        "||", "|| ||", "Aa || BB", "a || a", "* || a", "\u6d88\u606f || \ud83d\ude00", "\u00a0a", "\u2003a\u2003",
        "a\u0000", "\u001fa||b\u001f", "A||a", "a b", "polygenelubricants",
    };

    private SubscriptionVectors() {
    }

    static List<Map<String, Object>> make() {
        List<Map<String, Object>> vectors = new ArrayList<>();
        for (String expression : EXPRESSIONS) {
            vectors.add(Release.subscription("orders", expression));
        }
        return vectors;
    }
}
