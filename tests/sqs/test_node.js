// The AWS SDK for JavaScript v3: send, batch, long poll, visibility, delete, errors.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.INSTALLED}/`);
const sqs = require("@aws-sdk/client-sqs");

const client = new sqs.SQSClient({
  endpoint: process.env.SQS_ENDPOINT,
  region: "us-east-1",
  credentials: { accessKeyId: process.env.SQS_KEY_ID, secretAccessKey: process.env.SQS_SECRET },
  maxAttempts: 1,
});
const send = (Command, input) => client.send(new sqs[`${Command}Command`](input));

const { QueueUrl } = await send("CreateQueue", { QueueName: "node", Attributes: { VisibilityTimeout: "60" } });
await send("SendMessage", {
  QueueUrl,
  MessageBody: "größe",
  MessageAttributes: { n: { DataType: "Number", StringValue: "7" }, b: { DataType: "Binary", BinaryValue: new Uint8Array([1, 255]) } },
});
const batch = await send("SendMessageBatch", { QueueUrl, Entries: [{ Id: "a", MessageBody: "x" }, { Id: "b", MessageBody: "\u0001" }] });
assert.deepEqual(batch.Successful.map((entry) => entry.Id), ["a"]);
assert.deepEqual(batch.Failed.map((entry) => [entry.Id, entry.Code]), [["b", "InvalidMessageContents"]]);

const { Messages } = await send("ReceiveMessage", {
  QueueUrl,
  MaxNumberOfMessages: 10,
  WaitTimeSeconds: 5,
  MessageAttributeNames: ["All"],
  MessageSystemAttributeNames: ["All"],
});
assert.deepEqual(Messages.map((message) => message.Body), ["größe", "x"]);
assert.equal(Messages[0].MessageAttributes.n.StringValue, "7");
assert.deepEqual([...Messages[0].MessageAttributes.b.BinaryValue], [1, 255]);
assert.equal(Messages[0].Attributes.ApproximateReceiveCount, "1");
await send("ChangeMessageVisibility", { QueueUrl, ReceiptHandle: Messages[1].ReceiptHandle, VisibilityTimeout: 0 });
await send("DeleteMessage", { QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle });
const again = await send("ReceiveMessage", { QueueUrl });
assert.deepEqual(again.Messages.map((message) => message.Body), ["x"]);
const empty = await send("ReceiveMessage", { QueueUrl });
assert.equal(empty.Messages, undefined);
const rest = again.Messages.map((message) => ({ Id: "x", ReceiptHandle: message.ReceiptHandle }));
const deleted = await send("DeleteMessageBatch", { QueueUrl, Entries: rest });
assert.deepEqual(deleted.Successful.map((entry) => entry.Id), ["x"]);

await send("CreateQueue", { QueueName: "node-dead" });
const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: "arn:aws:sqs:us-east-1:000000000000:node-dead", maxReceiveCount: 1 });
const mortal = (await send("CreateQueue", { QueueName: "node-mortal", Attributes: { RedrivePolicy } })).QueueUrl;
await send("SendMessage", { QueueUrl: mortal, MessageBody: "m" });
const [doomed] = (await send("ReceiveMessage", { QueueUrl: mortal, WaitTimeSeconds: 5 })).Messages;
await send("ChangeMessageVisibility", { QueueUrl: mortal, ReceiptHandle: doomed.ReceiptHandle, VisibilityTimeout: 0 });
const dead = (await send("GetQueueUrl", { QueueName: "node-dead" })).QueueUrl;
const buried = await send("ReceiveMessage", { QueueUrl: dead, WaitTimeSeconds: 20 });
assert.deepEqual(buried.Messages.map((message) => message.Body), ["m"]);
await send("DeleteQueue", { QueueUrl });
await assert.rejects(send("GetQueueUrl", { QueueName: "node" }), sqs.QueueDoesNotExist);
