import io.iron.ironmq.Alert;
import io.iron.ironmq.Client;
import io.iron.ironmq.Cloud;
import io.iron.ironmq.HTTPException;
import io.iron.ironmq.Ids;
import io.iron.ironmq.Message;
import io.iron.ironmq.MessageOptions;
import io.iron.ironmq.Messages;
import io.iron.ironmq.Queue;
import io.iron.ironmq.QueueModel;
import io.iron.ironmq.Subscriber;
import java.util.ArrayList;
import java.util.List;

/** The unmodified Java client of IronMQ, against the broker at port PORT and the endpoint ENDPOINT. */
public class IronMqJava {
    private interface Call {
        void run() throws Exception;
    }

    private static void same(Object want, Object got) {
        if (!want.equals(got)) {
            throw new AssertionError("expected " + want + ", got " + got);
        }
    }

    private static void fails(int status, String words, Call call) throws Exception {
        try {
            call.run();
        } catch (HTTPException error) {
            same(status, error.getStatusCode());
            same(true, error.getMessage().contains(words));
            return;
        }
        throw new AssertionError("expected status " + status);
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(System.getenv("PORT"));
        Client client = new Client("java", "any", new Cloud("http", "127.0.0.1", port), 3);
        Queue queue = client.queue("java-queue");
        fails(404, "Queue not found", queue::getInfoAboutQueue);
        Ids ids = queue.pushMessages(new String[] {"one", "two", "three"});
        same(3, ids.getSize());
        same(3, queue.getInfoAboutQueue().getSize());
        Message first = queue.reserve();
        same("one", first.getBody());
        same(ids.getId(0), first.getId());
        same("two", queue.peek().getBody());
        MessageOptions touched = queue.touchMessage(first);
        queue.releaseMessage(first.getId(), touched.getReservationId(), 0L);
        Messages all = queue.reserve(10, 60, 5);
        same(3, all.getSize());
        queue.deleteMessage(all.getMessage(0));
        fails(403, "timed out", () -> queue.deleteMessage(all.getMessage(1).getId(), "1"));
        queue.deleteMessages(new Messages(all.getMessage(1), all.getMessage(2)));
        same(0, queue.getInfoAboutQueue().getSize());
        queue.push("delayed", 600);
        queue.clear();
        QueueModel changed = queue.update(new QueueModel(90, 5000));
        same(90, changed.getMessageTimeout());
        ArrayList<Alert> alerts = new ArrayList<>(List.of(new Alert("fixed", "asc", 5, 60, "java-alerts")));
        queue.addAlertsToQueue(alerts);
        ArrayList<Alert> kept = queue.getInfoAboutQueue().getAlerts();
        same(5, kept.get(0).getTrigger());
        queue.deleteAlertFromQueueById(kept.get(0).getId());
        queue.updateAlertsToQueue(alerts);
        queue.deleteAlertsFromQueue(alerts);
        same(true, queue.getInfoAboutQueue().getAlerts() == null);
        queue.destroy();

        Subscriber subscriber = new Subscriber(System.getenv("ENDPOINT"), "java");
        Queue pushing = client.queue("java-push");
        pushing.create(new ArrayList<>(List.of(subscriber)), null, "multicast", 3, 60);
        pushing.addSubscribers(new Subscriber[] {new Subscriber("http://127.0.0.1:1/", "other")});
        pushing.removeSubscribers(new Subscriber[] {new Subscriber("http://127.0.0.1:1/", "other")});
        same(1, pushing.getInfoAboutQueue().getPushInfo().getSubscribers().size());
        pushing.push("pushed to java");
        System.out.println("done");
    }
}
