package org.apache.activemq.transport.vm;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.activemq.transport.Transport;
import org.apache.activemq.transport.TransportFactory;
import org.apache.activemq.transport.TransportServer;
import postroad.jms.BrokerForEachTest;

/**
 * What ActiveMQ looks up for {@code vm:}, the broker in the process; this one is found first, and leads to Postroad by TCP. So tests that know their
 * broker by its URL alone run unchanged.
 */
public final class VMTransportFactory extends TransportFactory {
    @Override
    public Transport doConnect(URI location) throws Exception {
        return TransportFactory.connect(postroad());
    }

    @Override
    public Transport doCompositeConnect(URI location) throws Exception {
        return TransportFactory.compositeConnect(postroad());
    }

    @Override
    public TransportServer doBind(URI location) throws IOException {
        throw new IOException(location + ": there is no broker in this process that could listen");
    }

    /** Brokers in the process call this when they end. */
    public static void stopped(String host) {}

    private static URI postroad() throws IOException, URISyntaxException {
        String url = BrokerForEachTest.url;
        if (url == null) {
            throw new IOException("no test is running");
        }
        return new URI(url);
    }
}
