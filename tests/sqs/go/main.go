// The AWS SDK for Go v2: send, long poll, visibility, delete, errors.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func want(ok bool, what string) {
	if !ok {
		log.Fatal(what)
	}
}

func main() {
	ctx := context.Background()
	credentials := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: os.Getenv("SQS_KEY_ID"), SecretAccessKey: os.Getenv("SQS_SECRET")}, nil
	})
	client := sqs.New(sqs.Options{
		BaseEndpoint:     aws.String(os.Getenv("SQS_ENDPOINT")),
		Region:           "us-east-1",
		Credentials:      credentials,
		RetryMaxAttempts: 1,
	})
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go")})
	check(err)
	url := made.QueueUrl
	value := types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}}
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("größe"),
		MessageAttributes: map[string]types.MessageAttributeValue{"b": value},
	})
	check(err)
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, WaitTimeSeconds: 5, MessageAttributeNames: []string{"b"},
	})
	check(err)
	want(len(got.Messages) == 1 && *got.Messages[0].Body == "größe", "the message")
	want(string(got.Messages[0].MessageAttributes["b"].BinaryValue) == "\x00\xff", "its attribute")
	handle := got.Messages[0].ReceiptHandle
	_, err = client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: handle, VisibilityTimeout: 60})
	check(err)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: handle})
	check(err)
	batch, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{
		{Id: aws.String("1"), MessageBody: aws.String("one")}, {Id: aws.String("2"), MessageBody: aws.String("two")},
	}})
	check(err)
	want(len(batch.Successful) == 2 && len(batch.Failed) == 0, "a batch")
	got, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 5})
	check(err)
	want(len(got.Messages) == 2, "both of the batch")
	var changes []types.ChangeMessageVisibilityBatchRequestEntry
	var deletes []types.DeleteMessageBatchRequestEntry
	for _, message := range got.Messages {
		id := aws.String("id" + *message.Body)
		changes = append(changes, types.ChangeMessageVisibilityBatchRequestEntry{Id: id, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: 60})
		deletes = append(deletes, types.DeleteMessageBatchRequestEntry{Id: id, ReceiptHandle: message.ReceiptHandle})
	}
	changed, err := client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: url, Entries: changes})
	check(err)
	deleted, err := client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: deletes})
	check(err)
	want(len(changed.Successful) == 2 && len(deleted.Successful) == 2, "both are changed and deleted")

	_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go-dead")})
	check(err)
	policy := `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:go-dead","maxReceiveCount":"1"}`
	mortal, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go-mortal"), Attributes: map[string]string{"RedrivePolicy": policy}})
	check(err)
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: mortal.QueueUrl, MessageBody: aws.String("m")})
	check(err)
	got, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: mortal.QueueUrl, WaitTimeSeconds: 5})
	check(err)
	want(len(got.Messages) == 1, "one that will be dead")
	handle = got.Messages[0].ReceiptHandle
	_, err = client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: mortal.QueueUrl, ReceiptHandle: handle, VisibilityTimeout: 0})
	check(err)
	dead, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("go-dead")})
	check(err)
	got, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: dead.QueueUrl, WaitTimeSeconds: 20})
	check(err)
	want(len(got.Messages) == 1 && *got.Messages[0].Body == "m", "a dead letter")

	about, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{"All"}})
	check(err)
	want(about.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0", "an empty queue")
	_, err = client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
	var missing *types.QueueDoesNotExist
	want(errors.As(err, &missing), "an error of its own type")
}
