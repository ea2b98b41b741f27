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
	about, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{"All"}})
	check(err)
	want(about.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0", "an empty queue")
	_, err = client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
	var missing *types.QueueDoesNotExist
	want(errors.As(err, &missing), "an error of its own type")
}
