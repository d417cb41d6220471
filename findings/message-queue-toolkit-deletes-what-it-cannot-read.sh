#!/usr/bin/env bash
# @message-queue-toolkit/sqs 24.2.1 with @message-queue-toolkit/core 25.4.0 (npm); sqs-consumer 14.2.8 below it
# Bet: a message that the consumer cannot read stays in the queue, as one does whose handler throws. It comes again, and
#   after maxReceiveCount attempts the queue's own redrive policy has it in the dead-letter queue, as its README
#   says of messages that cannot be processed.
# Behaviour: a body that is no JSON, a type for which there is no handler yet and a field that does not fit its schema
#   are errors in the log, and the message is deleted at its first receive. With its own option deadLetterQueue, a copy
#   is sent there before, without the attributes of the message.
# Cost: where the dead-letter queue is set up outside, by Terraform say, and the option is left out, a producer that is
#   deployed before its consumer loses each message of the new type, although the queue has a redrive policy. In a FIFO
#   queue the next message of the group is handled as if it had never been. Set deadLetterQueue to that queue.
# Seen: fits: handled, deleted
#       handler throws: handled, left
#       no JSON: deleted
#       type without a handler: deleted
#       wrong field: deleted
#       wrong field, deadLetterQueue: sent to dead.fifo without attributes, deleted
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

const md5 = (text) => createHash("md5").update(text).digest("hex");
const ARN = "arn:aws:sqs:us-east-1:1";
const POLICY = JSON.stringify({ deadLetterTargetArn: `${ARN}:dead.fifo`, maxReceiveCount: 3 });
let waiting, polls, seen, polledAgain;

// The queue of one run: orders.fifo has one message and a redrive policy, as somebody has set it up.
function answer(operation, given) {
  const queue = given.QueueUrl?.split("/").at(-1);
  switch (operation) {
    case "GetQueueAttributes":
      return { Attributes: { QueueArn: `${ARN}:${queue}`, VisibilityTimeout: "30", RedrivePolicy: POLICY } };
    case "ReceiveMessage":
      polls += 1;
      // What is not deleted before the second poll is left.
      if (polls === 2) polledAgain();
      return polls === 1 ? { Messages: [waiting] } : {};
    case "SendMessage":
      seen.push(`sent to ${queue} with${given.MessageAttributes ? "" : "out"} attributes`);
      return { MessageId: "2", MD5OfMessageBody: md5(given.MessageBody) };
    case "DeleteMessage":
      seen.push("deleted");
  }
  return {};
}

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const given = answer(request.headers["x-amz-target"].split(".")[1], JSON.parse(text));
  response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(given));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqsClient = new SQSClient({ region: "us-east-1", endpoint, credentials });

const Paid = z.object({ id: z.string(), type: z.literal("order.paid"), timestamp: z.string(), amount: z.number() });
const ignore = () => {};
const dependencies = {
  sqsClient,
  logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
  errorReporter: { report: ignore },
  consumerErrorResolver: new SqsConsumerErrorResolver(),
  transactionObservabilityManager: { start: ignore, stop: ignore },
};

class Orders extends AbstractSqsConsumer {
  constructor(handle, more) {
    const handlers = new MessageHandlerConfigBuilder().addConfig(Paid, handle).build();
    const locatorConfig = { queueUrl: `${endpoint}/1/orders.fifo` };
    const messageTypeResolver = { messageTypePath: "type" };
    super(dependencies, { fifoQueue: true, locatorConfig, messageTypeResolver, handlers, ...more }, {});
  }
}

const Attributes = { MessageGroupId: "order-1", MessageDeduplicationId: "1" };
async function run(Body, { fails = false, ...more } = {}) {
  waiting = { MessageId: "1", ReceiptHandle: "h", Body, MD5OfBody: md5(Body), Attributes };
  waiting.MessageAttributes = { trace: { DataType: "String", StringValue: "t" } };
  [polls, seen] = [0, []];
  const again = new Promise((resolve) => (polledAgain = resolve));
  const handle = async () => {
    seen.push("handled");
    if (fails) throw new Error("not now");
    return { result: "success" };
  };
  const consumer = new Orders(handle, more);
  await consumer.start();
  await again;
  await consumer.close(true);
  return [...seen, ...(seen.includes("deleted") ? [] : ["left"])].join(", ");
}

const paid = { id: "1", type: "order.paid", timestamp: "2026-11-30T12:00:00.000Z", amount: 5 };
const wrong = JSON.stringify({ ...paid, amount: "5" });
const locatorConfig = { queueUrl: `${endpoint}/1/dead.fifo` };
const deadLetterQueue = { locatorConfig, redrivePolicy: { maxReceiveCount: 3 } };
const ends = {
  fits: await run(JSON.stringify(paid)),
  "handler throws": await run(JSON.stringify(paid), { fails: true }),
  "no JSON": await run("paid"),
  "type without a handler": await run(JSON.stringify({ ...paid, type: "order.refunded" })),
  "wrong field": await run(wrong),
  "wrong field, deadLetterQueue": await run(wrong, { deadLetterQueue }),
};
server.closeAllConnections();
server.close();
for (const [what, end] of Object.entries(ends)) console.log(`${what}: ${end}`);
const expected = ["handled, deleted", "handled, left", "deleted", "deleted", "deleted"];
expected.push("sent to dead.fifo without attributes, deleted");
process.exit(Object.values(ends).join("|") === expected.join("|") ? 0 : 1);
JS
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
node run.mjs 2>log || { tail -5 log >&2; exit 1; }
