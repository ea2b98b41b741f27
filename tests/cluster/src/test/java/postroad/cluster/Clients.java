package postroad.cluster;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.transport.DefaultTransportListener;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;

/**
 * Unmodified clients with {@code failover:}. Each queue has a producer that waits for every send, and a consumer that commits every
 * message; both are of one protocol.
 */
final class Clients {
    /** How a protocol's client behaves when its connection is lost, as far as a test must know. */
    enum Protocol {
        /**
         * A commit confirms a copy of a message that came over the present connection, and nothing about a copy that the client kept from
         * a former one: it may hand that to the application after it has another connection, commit it without an acknowledgement
         * (FailoverTransport.oneway drops those while it is not connected), or hand out the copy of the present connection after it
         * (ActiveMQMessageConsumer.rollback). Sends are numbered, and the broker takes one that is sent again in once. The client's own
         * audit is off: it moves each redelivery of a message that it lost with its connection to the dead letters
         * (ActiveMQMessageConsumer.dispatch, "suppressing duplicate delivery").
         */
        OPENWIRE(false),
        /**
         * A commit fails if the connection was lost in its transaction (JmsLocalTransactionContext.isInDoubt). A send that was not
         * answered is sent again (FailoverProvider), and AMQP 1.0 has no duplicate detection: such a message may be there twice.
         */
        AMQP(true);

        private final boolean sendsAgain;

        Protocol(boolean sendsAgain) {
            this.sendsAgain = sendsAgain;
        }
    }

    final Ledger ledger = new Ledger();
    /** Who uses a queue; {@code null} if the clients do not log in. */
    private final UnaryOperator<String> users;
    private final List<Thread> threads = new ArrayList<>();
    private final List<AtomicInteger> sends = new ArrayList<>();
    /** The longest time of a send, of each producer. */
    private final List<AtomicLong> pausesNanos = new ArrayList<>();
    private volatile boolean sendAgainIfFull;
    private final AtomicBoolean stopSending = new AtomicBoolean();
    private final AtomicBoolean stopReceiving = new AtomicBoolean();

    Clients() {
        this(null);
    }

    /** Clients that log in as the user of their queue. */
    Clients(UnaryOperator<String> users) {
        this.users = users;
    }

    /** Starts a producer and a consumer of a queue. */
    void start(Protocol protocol, String queue, List<Node> nodes) {
        AtomicInteger count = new AtomicInteger();
        sends.add(count);
        AtomicLong pauseNanos = new AtomicLong();
        pausesNanos.add(pauseNanos);
        run(() -> produce(protocol, queue, nodes, count, pauseNanos));
        run(() -> consume(protocol, queue, nodes));
    }

    /**
     * A send that is refused as the disk of the leader is full is done once more: a leader refuses for the moment that it takes to hand
     * over to another node. Call it before clients start.
     */
    void sendAgainIfFull() {
        sendAgainIfFull = true;
    }

    /** Confirmed sends so far, of each queue. */
    int[] sends() {
        return sends.stream().mapToInt(AtomicInteger::get).toArray();
    }

    /** How long the longest send of each producer took since the last call. */
    List<Long> takePausesMs() {
        return pausesNanos.stream().map(nanos -> nanos.getAndSet(0) / 1_000_000).toList();
    }

    /** Whether each producer has had this many sends confirmed since. */
    boolean haveSent(int more, int[] since) {
        int[] now = sends();
        for (int queue = 0; queue < now.length; queue++) {
            if (now[queue] < since[queue] + more) {
                return false;
            }
        }
        return true;
    }

    /** Ends producers; consumers go on. */
    void stopSending() {
        stopSending.set(true);
    }

    /** Ends all without waiting. */
    void abandon() {
        stopSending.set(true);
        stopReceiving.set(true);
    }

    /** Ends all, and waits for their threads. */
    void stop() throws InterruptedException {
        abandon();
        for (Thread thread : threads) {
            thread.join(Cluster.WITHIN_MS);
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private void run(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable thrown) {
                ledger.failure.compareAndSet(null, thrown);
            }
        });
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
    }

    /** A connection that notes the moment at which it was last lost. */
    private Connection connect(Protocol protocol, String queue, List<Node> nodes, Lost lost) throws JMSException {
        ConnectionFactory factory = factory(protocol, nodes);
        String user = users == null ? null : users.apply(queue);
        Connection connection = user == null ? factory.createConnection() : factory.createConnection(user, "secret of " + user);
        if (connection instanceof ActiveMQConnection openWire) {
            openWire.addTransportListener(new DefaultTransportListener() {
                @Override
                public void transportInterupted() {
                    lost.now();
                }
            });
        } else if (connection instanceof JmsConnection amqp) {
            amqp.addConnectionListener(new AmqpListener(lost));
        }
        connection.start();
        return connection;
    }

    /** When a connection was last lost, and how often. */
    private static final class Lost {
        private final AtomicInteger times = new AtomicInteger();
        private final AtomicLong atMs = new AtomicLong();

        void now() {
            atMs.set(System.currentTimeMillis());
            times.incrementAndGet();
        }

        /** Whether this copy of a message came over the connection that is there now. */
        boolean isBefore(Message message) {
            return !(message instanceof ActiveMQMessage openWire) || atMs.get() < openWire.getBrokerOutTime();
        }
    }

    private record AmqpListener(Lost lost) implements JmsConnectionListener {
        @Override
        public void onConnectionInterrupted(URI remote) {
            lost.now();
        }

        @Override
        public void onConnectionEstablished(URI remote) {}

        @Override
        public void onConnectionFailure(Throwable error) {}

        @Override
        public void onConnectionRestored(URI remote) {}

        @Override
        public void onInboundMessage(JmsInboundMessageDispatch envelope) {}

        @Override
        public void onSessionClosed(Session session, Throwable cause) {}

        @Override
        public void onConsumerClosed(MessageConsumer consumer, Throwable cause) {}

        @Override
        public void onProducerClosed(MessageProducer producer, Throwable cause) {}
    }

    private static ConnectionFactory factory(Protocol protocol, List<Node> nodes) {
        if (protocol == Protocol.OPENWIRE) {
            String urls = nodes.stream().map(Node::url).collect(Collectors.joining(","));
            return new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=200&jms.prefetchPolicy.all=50&jms.checkForDuplicates=false"
                    + "&nested.wireFormat.maxInactivityDuration=2000&nested.wireFormat.maxInactivityDurationInitalDelay=2000");
        }
        String urls = nodes.stream().map(Node::amqpUrl).collect(Collectors.joining(","));
        return new JmsConnectionFactory("failover:(" + urls + ")?failover.maxReconnectDelay=200&failover.nested.amqp.idleTimeout=2000"
                + "&jms.prefetchPolicy.all=50&jms.connectTimeout=2000");
    }

    private void produce(Protocol protocol, String queue, List<Node> nodes, AtomicInteger count, AtomicLong pauseNanos)
            throws JMSException {
        Lost lost = new Lost();
        Connection connection = connect(protocol, queue, nodes, lost);
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int number = 0; !stopSending.get(); number++) {
            String text = queue + "/" + number;
            int lostBefore = lost.times.get();
            long beganNanos = System.nanoTime();
            send(producer, session.createTextMessage(text));
            pauseNanos.accumulateAndGet(System.nanoTime() - beganNanos, Math::max);
            if (protocol.sendsAgain && lost.times.get() != lostBefore) {
                ledger.sentTwice.add(text);
            }
            ledger.sent.add(text);
            count.incrementAndGet();
        }
        connection.close();
    }

    private void send(MessageProducer producer, TextMessage message) throws JMSException {
        while (true) {
            try {
                producer.send(message);
                return;
            } catch (ResourceAllocationException full) {
                ledger.refused.incrementAndGet();
                if (!sendAgainIfFull || stopSending.get()) {
                    throw full;
                }
            }
        }
    }

    private void consume(Protocol protocol, String queue, List<Node> nodes) throws JMSException {
        Lost lost = new Lost();
        Connection connection = connect(protocol, queue, nodes, lost);
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        int next = 0;
        while (!stopReceiving.get()) {
            Message message = consumer.receive(200);
            if (message == null) {
                continue;
            }
            String text = ((TextMessage) message).getText();
            int number = ledger.received(text, next, message.getJMSRedelivered());
            int lostBefore = lost.times.get();
            boolean isOfThisConnection = lost.isBefore(message);
            try {
                session.commit();
                boolean isConfirmed = protocol == Protocol.AMQP || isOfThisConnection && lost.times.get() == lostBefore;
                (isConfirmed ? ledger.committed : ledger.inDoubt).add(text);
            } catch (JMSException unanswered) {
                ledger.failedCommits.add(text + ": " + unanswered.getMessage());
                ledger.inDoubt.add(text);
            }
            // One that comes again takes nothing back: the client itself delivers one whose commit has failed, a second later.
            next = Math.max(next, number + 1);
        }
        connection.close();
    }
}
