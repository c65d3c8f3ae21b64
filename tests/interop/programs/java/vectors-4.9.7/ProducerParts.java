package cometmq.vectors;

import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.protocol.NamespaceUtil;

/** What a producer's vectors need of classes that this release has elsewhere, or makes otherwise. */
final class ProducerParts {
    private ProducerParts() {
    }

    static String wrap(String namespace, String name) {
        return NamespaceUtil.wrapNamespace(namespace, name);
    }

    static String unwrap(String namespace, String name) {
        return NamespaceUtil.withoutNamespace(name, namespace);
    }

    static String retry(String namespace, String group) {
        return NamespaceUtil.wrapNamespaceAndRetry(namespace, group);
    }

    static MQFaultStrategy strategy() {
        return new MQFaultStrategy();
    }
}
