package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import jakarta.jms.XAConnection;
import jakarta.jms.XASession;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** XA specification, chapter 3, through {@code ActiveMQXAConnectionFactory}. */
@DisplayName("XA: branches of distributed transactions")
class XaTest extends JmsTest {
    /** A branch of a transaction of its own. */
    private record Branch(byte[] global, byte[] qualifier) implements Xid {
        static Branch fresh() {
            String name = UUID.randomUUID().toString();
            return new Branch(name.getBytes(StandardCharsets.US_ASCII), new byte[] {1});
        }

        @Override
        public int getFormatId() {
            return 4711;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return global;
        }

        @Override
        public byte[] getBranchQualifier() {
            return qualifier;
        }

        boolean is(Xid other) {
            return other.getFormatId() == getFormatId() && Arrays.equals(other.getGlobalTransactionId(), global)
                    && Arrays.equals(other.getBranchQualifier(), qualifier);
        }
    }

    private XAConnection xa(String url) throws JMSException {
        ActiveMQXAConnectionFactory factory = new ActiveMQXAConnectionFactory(
                url + "?jms.redeliveryPolicy.initialRedeliveryDelay=0&jms.closeTimeout=5000");
        XAConnection connection = closing(factory.createXAConnection());
        connection.start();
        return connection;
    }

    private XASession session() throws JMSException {
        return xa(SharedBroker.url()).createXASession();
    }

    private static boolean inDoubt(XAResource resource, Branch branch) throws XAException {
        return Arrays.stream(resource.recover(XAResource.TMSTARTRSCAN)).anyMatch(branch::is);
    }

    private static void assertCode(int code, Step step) {
        XAException exception = assertThrows(XAException.class, step::run);
        assertEquals(code, exception.errorCode, exception::getMessage);
    }

    @ParameterizedTest(name = "one phase: {0}")
    @ValueSource(booleans = {false, true})
    @DisplayName("receives and sends of a branch are carried out at its commit, and not before")
    void commit(boolean onePhase) throws Exception {
        ActiveMQQueue in = queue("in");
        ActiveMQQueue out = queue("out");
        send(autoAcknowledge(connect()), in, numbered("m", 3));
        XASession session = session();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(in);
        MessageConsumer seen = autoAcknowledge(connect()).createConsumer(out);
        Branch branch = Branch.fresh();
        resource.start(branch, XAResource.TMNOFLAGS);
        assertEquals(List.of("m0", "m1"), texts(consumer, 2));
        send(session, out, "a", "b");
        resource.end(branch, XAResource.TMSUCCESS);
        if (!onePhase) {
            assertEquals(XAResource.XA_OK, resource.prepare(branch));
        }
        assertSilent(seen);
        resource.commit(branch, onePhase);
        assertEquals(List.of("a", "b"), texts(seen, 2));
        session.close();
        assertEquals(List.of("m2"), texts(autoAcknowledge(connect()).createConsumer(in), 1));
        assertEmpty(in);
    }

    @ParameterizedTest(name = "prepared: {0}")
    @ValueSource(booleans = {false, true})
    @DisplayName("a rolled back branch sends nothing, and its receives come again and can be committed then")
    void rollback(boolean prepared) throws Exception {
        ActiveMQQueue in = queue("in");
        ActiveMQQueue out = queue("out");
        send(autoAcknowledge(connect()), in, "m");
        XASession session = session();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(in);
        for (boolean last : new boolean[] {false, true}) {
            Branch branch = Branch.fresh();
            resource.start(branch, XAResource.TMNOFLAGS);
            assertEquals("m", text(receive(consumer)));
            send(session, out, "last: " + last);
            resource.end(branch, XAResource.TMSUCCESS);
            if (prepared || last) {
                assertEquals(XAResource.XA_OK, resource.prepare(branch));
            }
            if (last) {
                resource.commit(branch, false);
            } else {
                resource.rollback(branch);
            }
        }
        session.close();
        assertEmpty(in);
        MessageConsumer rest = autoAcknowledge(connect()).createConsumer(out);
        assertEquals("last: true", text(receive(rest)));
        assertSilent(rest);
    }

    @Test
    @DisplayName("a branch is suspended for another one and resumed, and joined by another session")
    void suspendAndJoin() throws Exception {
        ActiveMQQueue queue = queue("suspended");
        XASession session = session();
        XASession other = session();
        XAResource resource = session.getXAResource();
        Branch branch = Branch.fresh();
        Branch between = Branch.fresh();
        resource.start(branch, XAResource.TMNOFLAGS);
        send(session, queue, "first");
        resource.end(branch, XAResource.TMSUSPEND);
        resource.start(between, XAResource.TMNOFLAGS);
        send(session, queue, "between");
        resource.end(between, XAResource.TMSUCCESS);
        resource.start(branch, XAResource.TMRESUME);
        send(session, queue, "second");
        resource.end(branch, XAResource.TMSUCCESS);
        assertEquals(true, resource.isSameRM(other.getXAResource()));
        other.getXAResource().start(branch, XAResource.TMJOIN);
        send(other, queue, "joined");
        other.getXAResource().end(branch, XAResource.TMSUCCESS);
        resource.prepare(branch);
        resource.commit(branch, false);
        resource.rollback(between);
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        assertEquals(List.of("first", "second", "joined"), texts(consumer, 3));
        assertSilent(consumer);
    }

    @Test
    @PostroadOnly("ActiveMQ says of a branch that nobody has begun that the resource manager has failed")
    @DisplayName("wrong steps are XAExceptions with the codes of the specification")
    void codes() throws Exception {
        XASession session = session();
        XAResource resource = session.getXAResource();
        Branch branch = Branch.fresh();
        assertCode(XAException.XAER_NOTA, () -> resource.prepare(branch));
        assertCode(XAException.XAER_NOTA, () -> resource.commit(branch, false));
        assertCode(XAException.XAER_NOTA, () -> resource.rollback(branch));
        resource.start(branch, XAResource.TMNOFLAGS);
        send(session, queue("codes"), "m");
        resource.end(branch, XAResource.TMSUCCESS);
        assertCode(XAException.XAER_PROTO, () -> resource.commit(branch, false));
        resource.rollback(branch);
        assertCode(XAException.XAER_NOTA, () -> resource.rollback(branch));
    }

    @Test
    @DisplayName("a branch in which nothing was done votes read only, and is over")
    void readOnly() throws Exception {
        XAResource resource = session().getXAResource();
        Branch branch = Branch.fresh();
        resource.start(branch, XAResource.TMNOFLAGS);
        resource.end(branch, XAResource.TMSUCCESS);
        assertEquals(XAResource.XA_RDONLY, resource.prepare(branch));
        assertCode(XAException.XAER_NOTA, () -> resource.commit(branch, false));
    }

    @Test
    @DisplayName("what was prepared outlives its connection, what was not ends with it")
    void endOfConnection() throws Exception {
        ActiveMQQueue queue = queue("gone");
        for (boolean prepared : new boolean[] {false, true}) {
            XAConnection connection = xa(SharedBroker.url());
            XASession session = connection.createXASession();
            Branch branch = Branch.fresh();
            session.getXAResource().start(branch, XAResource.TMNOFLAGS);
            send(session, queue, "prepared: " + prepared);
            session.getXAResource().end(branch, XAResource.TMSUCCESS);
            if (prepared) {
                session.getXAResource().prepare(branch);
            }
            breakOff(connection);
            XAResource resource = session().getXAResource();
            if (prepared) {
                assertEquals(true, inDoubt(resource, branch));
                resource.commit(branch, false);
                assertEquals(false, inDoubt(resource, branch));
            } else {
                awaitUnknown(resource, branch);
            }
        }
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        assertEquals("prepared: true", text(receive(consumer)));
        assertSilent(consumer);
    }

    /** The broker learns of the end of a socket a little later than the client. */
    private static void awaitUnknown(XAResource resource, Branch branch) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            XAException exception = assertThrows(XAException.class, () -> resource.commit(branch, false));
            if (exception.errorCode == XAException.XAER_NOTA || System.currentTimeMillis() > end) {
                assertEquals(XAException.XAER_NOTA, exception.errorCode, exception::getMessage);
                return;
            }
            Thread.sleep(10);
        }
    }

    @ParameterizedTest(name = "commit: {0}")
    @ValueSource(booleans = {true, false})
    @NeedsOwnBroker
    @DisplayName("an operator ends a branch in doubt, and its manager is told, across a crash, until it forgets")
    void operatorDecides(boolean commit) throws Exception {
        try (Broker broker = Broker.launch("operator")) {
            ActiveMQQueue in = queue("in");
            ActiveMQQueue out = queue("out");
            send(autoAcknowledge(closing(factoryFor(broker.url()).createConnection())), in, "m");
            XASession session = xa(broker.url()).createXASession();
            Branch branch = Branch.fresh();
            MessageConsumer consumer = session.createConsumer(in);
            session.getXAResource().start(branch, XAResource.TMNOFLAGS);
            assertEquals("m", text(receive(consumer)));
            send(session, out, "done");
            session.getXAResource().end(branch, XAResource.TMSUCCESS);
            session.getXAResource().prepare(branch);
            String[] listed = broker.command("transactions", "list").strip().split("  ");
            assertEquals("prepared", listed[1]);
            assertTrue(broker.command("ctl", "transactions").contains(listed[0]), "the admin API lists it too");
            broker.command("ctl", "transactions", commit ? "commit" : "rollback", listed[0]);
            broker.kill();
            broker.start();
            assertEquals(listed[0] + (commit ? "  committed" : "  rolled back"), broker.command("transactions", "list").strip());
            XAResource resource = xa(broker.url()).createXASession().getXAResource();
            assertEquals(true, inDoubt(resource, branch));
            int code = commit ? XAException.XA_HEURCOM : XAException.XA_HEURRB;
            assertCode(code, () -> resource.commit(branch, false));
            assertCode(code, () -> resource.rollback(branch));
            resource.forget(branch);
            assertEquals(false, inDoubt(resource, branch));
            assertCode(XAException.XAER_NOTA, () -> resource.commit(branch, false));
            assertCode(XAException.XAER_NOTA, () -> resource.forget(branch));
            var ordinary = closing(factoryFor(broker.url()).createConnection());
            ordinary.start();
            Session plain = autoAcknowledge(ordinary);
            assertEquals(commit ? "done" : "m", text(receive(plain.createConsumer(commit ? out : in))));
            assertSilent(plain.createConsumer(commit ? in : out));
        }
    }

    @Test
    @NeedsOwnBroker
    @DisplayName("a branch or a transaction that is open for too long is rolled back, and what it held goes to others")
    void tooLate() throws Exception {
        try (Broker broker = Broker.launch("late", "[limits]\ntransaction_ms = 500\n")) {
            ActiveMQQueue in = queue("in");
            ActiveMQQueue out = queue("out");
            var ordinary = closing(factoryFor(broker.url()).createConnection());
            ordinary.start();
            Session plain = autoAcknowledge(ordinary);
            send(plain, in, "m");
            XASession session = xa(broker.url()).createXASession();
            XAResource resource = session.getXAResource();
            MessageConsumer consumer = session.createConsumer(in);
            Branch abandoned = Branch.fresh();
            resource.start(abandoned, XAResource.TMNOFLAGS);
            assertEquals("m", text(receive(consumer)));
            send(session, out, "never");
            resource.end(abandoned, XAResource.TMSUSPEND);
            Message again = receive(plain.createConsumer(in));
            assertEquals("m", text(again));
            assertEquals(true, again.getJMSRedelivered());
            assertCode(XAException.XA_RBTIMEOUT, () -> resource.prepare(abandoned));
            assertCode(XAException.XAER_NOTA, () -> resource.rollback(abandoned));

            Session local = ordinary.createSession(true, Session.SESSION_TRANSACTED);
            send(local, out, "never either");
            Thread.sleep(1000);
            assertThrows(TransactionRolledBackException.class, local::commit);
            send(local, out, "in time");
            local.commit();
            MessageConsumer sent = plain.createConsumer(out);
            assertEquals("in time", text(receive(sent)));
            assertSilent(sent);
        }
    }

    @ParameterizedTest(name = "commit: {0}")
    @ValueSource(booleans = {true, false})
    @NeedsOwnBroker
    @DisplayName("what is in doubt survives kill -9, is recovered, and can then be decided")
    void recover(boolean commit) throws Exception {
        try (Broker broker = Broker.launch("xa")) {
            ActiveMQQueue in = queue("in");
            ActiveMQQueue out = queue("out");
            send(autoAcknowledge(closing(factoryFor(broker.url()).createConnection())), in, numbered("m", 3));
            XAConnection connection = xa(broker.url());
            XASession session = connection.createXASession();
            Branch branch = Branch.fresh();
            MessageConsumer consumer = session.createConsumer(in);
            session.getXAResource().start(branch, XAResource.TMNOFLAGS);
            assertEquals(List.of("m0"), texts(consumer, 1));
            send(session, out, "done");
            session.getXAResource().end(branch, XAResource.TMSUCCESS);
            session.getXAResource().prepare(branch);
            Branch open = Branch.fresh();
            session.getXAResource().start(open, XAResource.TMNOFLAGS);
            assertEquals(List.of("m1"), texts(consumer, 1));
            session.getXAResource().end(open, XAResource.TMSUCCESS);
            for (int crash = 0; crash < 2; crash++) {
                broker.kill();
                broker.start();
            }
            XAConnection next = xa(broker.url());
            XAResource resource = next.createXASession().getXAResource();
            Xid[] found = resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
            assertEquals(1, found.length);
            assertEquals(true, branch.is(found[0]));
            var ordinary = closing(factoryFor(broker.url()).createConnection());
            ordinary.start();
            Session plain = autoAcknowledge(ordinary);
            MessageConsumer rest = plain.createConsumer(in);
            MessageConsumer sent = plain.createConsumer(out);
            assertEquals(List.of("m1", "m2"), texts(rest, 2));
            assertSilent(sent);
            if (commit) {
                resource.commit(found[0], false);
                assertEquals("done", text(receive(sent)));
            } else {
                resource.rollback(found[0]);
                assertEquals("m0", text(receive(rest)));
            }
            assertEquals(0, resource.recover(XAResource.TMSTARTRSCAN).length);
            Message more = commit ? rest.receive(SILENCE_MS) : sent.receive(SILENCE_MS);
            assertEquals(null, more);
        }
    }
}
