package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Durable subscriptions without a reader end after `limits.offline_subscription_ms`, those of former links too. */
@Tag("postroad")
class OfflineSubscriptionsTest {
    private static String west(String name, String url, String limits) {
        return "broker_name = '" + name + "'\n" + limits + "[[bridge]]\nname = 'east'\nto = ['" + url
                + "']\nduplex = true\nretry_ms = 50\nretry_max_ms = 50\n";
    }

    private static List<String> rows(Broker broker, String topic) throws Exception {
        return broker.command("ctl", "subscriptions", "--json").lines().filter(row -> row.contains("\"topic\":\"" + topic + "\"")).toList();
    }

    private static String linkOf(String row) {
        return row.replaceFirst(".*\"link_peer\":(\"[^\"]*\"|null).*", "$1") + row.replaceFirst(".*\"link_state\":(\"[^\"]*\"|null).*", "$1");
    }

    @Test
    void thatOfARenamedBrokerIsNamedAndEnds() throws Exception {
        try (Broker east = Broker.launch("offline-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("offline-west", west("west", east.url(), ""));
                Subscriber of = new Subscriber(east.url(), "news");
                Subscriber away = new Subscriber(west.url(), "prices");
                Subscriber reads = new Subscriber(west.url(), "weather")) {
            Subscriber.awaitBridged("news", true, () -> Subscriber.isBridged(west, "news"));
            assertEquals(List.of("\"east\"\"linked\""), rows(west, "news").stream().map(OfflineSubscriptionsTest::linkOf).toList());
            assertEquals(List.of("nullnull"), rows(west, "prices").stream().map(OfflineSubscriptionsTest::linkOf).toList());
            away.leave();
            reads.leave();
            west.kill();
            west.configure(west("occident", east.url(), ""));
            west.start();
            reads.attach(west.url());
            NetworkTest.eventually("both subscriptions of the link are there", () -> rows(west, "news").size() == 2);
            assertEquals(1, rows(west, "news").stream().filter(row -> linkOf(row).endsWith("\"none\"")).count());
            assertTrue(west.command("ctl", "subscriptions").contains("no such link"));
            west.configure(west("occident", east.url(), "[limits]\noffline_subscription_ms = 1500\n"));
            west.reload();
            NetworkTest.eventually("the former one ends", () -> rows(west, "news").size() == 1);
            NetworkTest.eventually("a client's ends", () -> rows(west, "prices").isEmpty());
            assertTrue(linkOf(rows(west, "news").get(0)).endsWith("\"linked\""), "the present one has a reader");
            assertEquals(1, rows(west, "weather").size(), "one with a reader stays");
            assertTrue(west.log().contains("durable subscription ended"), west.log());
            String audit = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(west.httpUrl() + "/api/v1/audit")).build(),
                    HttpResponse.BodyHandlers.ofString()).body();
            assertEquals(3, audit.split("s without a reader").length, audit);
        }
    }
}
