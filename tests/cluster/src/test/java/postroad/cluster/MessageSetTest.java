package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

@DisplayName("sets of messages: what a ledger is kept in")
class MessageSetTest {
    private static MessageSet of(String... texts) {
        MessageSet set = new MessageSet();
        set.addAll(Set.of(texts));
        return set;
    }

    @Test
    @DisplayName("hold each message once, by queue and number")
    void membership() {
        MessageSet set = of("a/0", "a/70", "b/1");
        assertFalse(set.add("a/70"));
        assertTrue(set.add("b/70"));
        assertEquals(Set.of("a/0", "a/70", "b/1", "b/70"), set);
        assertFalse(set.contains("a/1"));
        assertFalse(set.contains("c/0"));
    }

    @Test
    @DisplayName("a message that only one of two has is found")
    void difference() {
        MessageSet sent = of("a/0", "a/1", "b/0");
        assertEquals(Set.of("a/1", "b/0"), sent.without(of("a/0", "c/0")));
        assertEquals(Set.of(), sent.without(of("a/0", "a/1").with(of("b/0", "b/1"))));
        assertEquals(3, sent.size());
    }
}
