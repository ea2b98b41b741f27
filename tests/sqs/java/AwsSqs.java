import java.net.URI;
import java.util.List;
import java.util.Map;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.ChangeMessageVisibilityBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.DeleteMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

/** The AWS SDK for Java v2: queues, batches, attributes, FIFO, dead letters, errors. It checks the MD5 sums itself. */
public class AwsSqs {
    private static void same(Object want, Object got) {
        if (!want.equals(got)) {
            throw new AssertionError("expected " + want + ", got " + got);
        }
    }

    public static void main(String[] arguments) {
        AwsBasicCredentials key = AwsBasicCredentials.create(System.getenv("SQS_KEY_ID"), System.getenv("SQS_SECRET"));
        try (SqsClient sqs = SqsClient.builder()
                .endpointOverride(URI.create(System.getenv("SQS_ENDPOINT")))
                .region(Region.EU_WEST_1)
                .credentialsProvider(StaticCredentialsProvider.create(key))
                .httpClientBuilder(UrlConnectionHttpClient.builder())
                .build()) {
            batches(sqs);
            fifo(sqs);
            deadLetters(sqs);
            try {
                sqs.getQueueUrl(request -> request.queueName("java-none"));
                throw new AssertionError("a queue that does not exist was found");
            } catch (QueueDoesNotExistException error) {
                same(400, error.statusCode());
            }
        }
        System.out.println("done");
    }

    private static void batches(SqsClient sqs) {
        String url = sqs.createQueue(request -> request.queueName("java").tags(Map.of("a", "b"))).queueUrl();
        same(Map.of("a", "b"), sqs.listQueueTags(request -> request.queueUrl(url)).tags());
        MessageAttributeValue bytes = MessageAttributeValue.builder()
                .dataType("Binary").binaryValue(SdkBytes.fromByteArray(new byte[] {0, -1})).build();
        MessageAttributeValue number = MessageAttributeValue.builder().dataType("Number.euro").stringValue("1.50").build();
        List<SendMessageBatchRequestEntry> entries = List.of(
                SendMessageBatchRequestEntry.builder().id("1").messageBody("größe <&>")
                        .messageAttributes(Map.of("b", bytes, "n", number)).build(),
                SendMessageBatchRequestEntry.builder().id("2").messageBody("two").build());
        same(2, sqs.sendMessageBatch(request -> request.queueUrl(url).entries(entries)).successful().size());
        List<Message> got = sqs.receiveMessage(request -> request.queueUrl(url).maxNumberOfMessages(10)
                .waitTimeSeconds(10).messageAttributeNames("All")
                .messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
        same(2, got.size());
        same("größe <&>", got.get(0).body());
        same(bytes, got.get(0).messageAttributes().get("b"));
        same("1.50", got.get(0).messageAttributes().get("n").stringValue());
        same("1", got.get(0).attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT));
        String second = got.get(1).receiptHandle();
        same(1, sqs.changeMessageVisibilityBatch(request -> request.queueUrl(url).entries(
                ChangeMessageVisibilityBatchRequestEntry.builder().id("x").receiptHandle(second).visibilityTimeout(0).build()))
                .successful().size());
        List<Message> again = sqs.receiveMessage(request -> request.queueUrl(url).waitTimeSeconds(10)).messages();
        same("two", again.get(0).body());
        same(2, sqs.deleteMessageBatch(request -> request.queueUrl(url).entries(
                DeleteMessageBatchRequestEntry.builder().id("a").receiptHandle(got.get(0).receiptHandle()).build(),
                DeleteMessageBatchRequestEntry.builder().id("b").receiptHandle(again.get(0).receiptHandle()).build()))
                .successful().size());
        same("0", sqs.getQueueAttributes(request -> request.queueUrl(url)
                .attributeNames(QueueAttributeName.ALL)).attributes().get(QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES));
        sqs.deleteQueue(request -> request.queueUrl(url));
    }

    private static void fifo(SqsClient sqs) {
        String url = sqs.createQueue(request -> request.queueName("java.fifo").attributes(Map.of(
                QueueAttributeName.FIFO_QUEUE, "true", QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true"))).queueUrl();
        String first = sqs.sendMessage(request -> request.queueUrl(url).messageBody("x").messageGroupId("g")).sequenceNumber();
        String same = sqs.sendMessage(request -> request.queueUrl(url).messageBody("x").messageGroupId("g")).sequenceNumber();
        same(first, same);
        List<Message> got = sqs.receiveMessage(request -> request.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(10)).messages();
        same(1, got.size());
        sqs.deleteMessage(request -> request.queueUrl(url).receiptHandle(got.get(0).receiptHandle()));
    }

    private static void deadLetters(SqsClient sqs) {
        String dead = sqs.createQueue(request -> request.queueName("java-dead")).queueUrl();
        String arn = sqs.getQueueAttributes(request -> request.queueUrl(dead).attributeNames(QueueAttributeName.QUEUE_ARN))
                .attributes().get(QueueAttributeName.QUEUE_ARN);
        String policy = "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":\"1\"}";
        String url = sqs.createQueue(request -> request.queueName("java-mortal")
                .attributes(Map.of(QueueAttributeName.REDRIVE_POLICY, policy))).queueUrl();
        sqs.sendMessage(request -> request.queueUrl(url).messageBody("m"));
        Message got = sqs.receiveMessage(request -> request.queueUrl(url).waitTimeSeconds(10)).messages().get(0);
        sqs.changeMessageVisibility(request -> request.queueUrl(url).receiptHandle(got.receiptHandle()).visibilityTimeout(0));
        same("m", sqs.receiveMessage(request -> request.queueUrl(dead).waitTimeSeconds(20)).messages().get(0).body());
        same(List.of(url), sqs.listDeadLetterSourceQueues(request -> request.queueUrl(dead)).queueUrls());
    }
}
