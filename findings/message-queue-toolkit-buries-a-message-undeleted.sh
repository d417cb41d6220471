#!/usr/bin/env bash
# @message-queue-toolkit/sqs 24.2.1 with @message-queue-toolkit/core 25.4.0 (npm); sqs-consumer 14.2.8 below it
# Bet: a message of a FIFO queue that its handler puts off (`retryLater`) past maxRetryDuration goes to the dead-letter
#   queue, as the README has it ("Moving message to DLQ"): it is sent there once and deleted, and the next one of its
#   group comes.
# Behaviour: with a standard queue it is so. With a FIFO queue a copy is sent, and then an error is raised, so that the
#   message is not deleted. It comes again after the visibility timeout, is handled and sent again, and so on until SQS
#   itself moves it to the same dead-letter queue.
# Cost: the copies have the message's deduplication id, so where the visibility timeout is longer than five minutes each
#   of them stays, beside the message that SQS moves, and whoever moves dead letters back has it done several times. The
#   group stands still for all these attempts, after the log has said that the message is moved. Look for copies by the
#   id in the body.
# Seen: standard: received 1, sent to the dead letters 1, deleted 1, left to the redrive policy 0
#       FIFO: received 3, sent to the dead letters 3, deleted 0, left to the redrive policy 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @message-queue-toolkit/sqs@24.2.1 @message-queue-toolkit/core@25.4.0 \
  @message-queue-toolkit/schemas@7.1.0 sqs-consumer@14.2.8 @aws-sdk/client-sqs@3.1169.0 zod@4.1.12 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { SQSClient } from "@aws-sdk/client-sqs";
import { MessageHandlerConfigBuilder } from "@message-queue-toolkit/core";
import { AbstractSqsConsumer, SqsConsumerErrorResolver } from "@message-queue-toolkit/sqs";
import { z } from "zod";

const ARN = "arn:aws:sqs:us-east-1:1:q";
const MAX_RECEIVES = 3;
const md5 = (text) => createHash("md5").update(text).digest("hex");
const order = { id: "1", type: "order.paid", timestamp: "2026-01-01T00:00:00.000Z" };
const Body = JSON.stringify(order);
const Attributes = { MessageGroupId: "order-1", MessageDeduplicationId: "1" };
const MESSAGE = { MessageId: "1", ReceiptHandle: "h", Body, MD5OfBody: md5(Body), Attributes };
let waits, received, sent, deleted, left, ended;

// The message, each time as after its visibility timeout, and its redrive policy.
function receive() {
  if (waits && received === MAX_RECEIVES) {
    [waits, left] = [false, left + 1];
  }
  if (!waits) {
    ended();
    return {};
  }
  received += 1;
  return { Messages: [MESSAGE] };
}

function send({ QueueUrl, MessageBody }) {
  if (!QueueUrl.includes("/dead")) throw new Error("sent elsewhere");
  sent += 1;
  return { MessageId: `${sent}`, MD5OfMessageBody: md5(MessageBody) };
}

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const operation = request.headers["x-amz-target"].split(".")[1];
  let answer = {};
  if (operation === "ReceiveMessage") answer = receive();
  if (operation === "SendMessage") answer = send(JSON.parse(text));
  if (operation === "DeleteMessage") [waits, deleted] = [false, deleted + 1];
  if (operation === "GetQueueAttributes") answer = { Attributes: { QueueArn: ARN, VisibilityTimeout: "30" } };
  response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(answer));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqsClient = new SQSClient({ region: "us-east-1", endpoint, credentials });

const Paid = z.object({ id: z.string(), type: z.literal("order.paid"), timestamp: z.string() });
const ignore = () => {};
const dependencies = {
  sqsClient,
  logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
  errorReporter: { report: ignore },
  consumerErrorResolver: new SqsConsumerErrorResolver(),
  transactionObservabilityManager: { start: ignore, stop: ignore },
};

class Orders extends AbstractSqsConsumer {
  constructor(fifoQueue) {
    const handlers = new MessageHandlerConfigBuilder().addConfig(Paid, async () => ({ error: "retryLater" })).build();
    const at = (name) => ({ queueUrl: `${endpoint}/1/${name}${fifoQueue ? ".fifo" : ""}` });
    const deadLetterQueue = { locatorConfig: at("dead"), redrivePolicy: { maxReceiveCount: MAX_RECEIVES } };
    const options = { fifoQueue, locatorConfig: at("orders"), deadLetterQueue, maxRetryDuration: 3600 };
    super(dependencies, { ...options, messageTypeResolver: { messageTypePath: "type" }, handlers }, {});
  }
}

async function run(fifoQueue) {
  [waits, received, sent, deleted, left] = [true, 0, 0, 0, 0];
  const end = new Promise((resolve) => (ended = resolve));
  const consumer = new Orders(fifoQueue);
  await consumer.start();
  await end;
  await consumer.close(true);
  const counts = `received ${received}, sent to the dead letters ${sent}, deleted ${deleted}`;
  return `${counts}, left to the redrive policy ${left}`;
}

const ends = { standard: await run(false), FIFO: await run(true) };
server.closeAllConnections();
server.close();
for (const [what, end] of Object.entries(ends)) console.log(`${what}: ${end}`);
const expected = ["received 1, sent to the dead letters 1, deleted 1, left to the redrive policy 0"];
expected.push("received 3, sent to the dead letters 3, deleted 0, left to the redrive policy 1");
process.exit(Object.values(ends).join("|") === expected.join("|") ? 0 : 1);
JS
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
node run.mjs 2>log || { tail -5 log >&2; exit 1; }
