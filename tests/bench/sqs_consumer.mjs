// sqs-consumer in a process of its own; the protocol with whoever starts it is that of worker.py.
import readline from "node:readline";
import { SQSClient, GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const job = JSON.parse(process.argv[2]);
const names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
const sqs = new SQSClient({
  endpoint: job.endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
});
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;
let count = 0;
let finished = 0;

const consumer = Consumer.create({
  queueUrl: job.url,
  sqs,
  suppressFifoWarning: true,
  batchSize: 10,
  waitTimeSeconds: 1,
  visibilityTimeout: 120,
  messageSystemAttributeNames: ["All"],
  messageAttributeNames: ["All"],
  handleMessageBatch: async (messages) => {
    count += messages.length;
    return messages;
  },
});
consumer.on("response_processed", () => (finished = monotonic()));
consumer.on("empty", async () => {
  const answer = await sqs.send(new GetQueueAttributesCommand({ QueueUrl: job.url, AttributeNames: names }));
  if (names.every((name) => answer.Attributes[name] === "0")) consumer.stop();
});
consumer.on("stopped", () => console.log(JSON.stringify({ count, finished })));
for (const event of ["error", "processing_error"]) {
  consumer.on(event, (error) => {
    console.error(error);
    process.exit(1);
  });
}

const lines = readline.createInterface({ input: process.stdin });
lines.once("line", () => {
  finished = monotonic();
  consumer.start();
});
lines.on("close", () => process.exit(0));
console.log("ready");
