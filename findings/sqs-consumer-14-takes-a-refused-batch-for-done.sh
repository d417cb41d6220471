#!/usr/bin/env bash
# sqs-consumer 14.2.8 (npm), the newest whose `engines` has Node 20, and 11.6.0, which @ssut/nestjs-sqs 3.0.1 brings
# Bet: with handleMessageBatch, a message whose delete or renewal SQS refuses is reported by an `error` event, as it is
#   with handleMessage.
# Behaviour: SQS answers a batch with 200 and names refused entries in `Failed`, and the consumer does not look there. It
#   emits `message_processed` for a message that was not deleted, and nothing for a heartbeat that renewed nothing. Only
#   15.0.3 reports both.
# Cost: its page tells users of a FIFO queue to take handleMessageBatch. Their messages come again after work that was
#   counted as done, and a handler works on when another has its messages, with no line in a log. Take version 15, or
#   set shouldDeleteMessages to false and send DeleteMessageBatch yourself.
# Seen: 11.6.0, delete refused: one error, batch message_processed
#       11.6.0, renewal refused: one error, batch nothing
#       14.2.8, delete refused: one error, batch message_processed
#       14.2.8, renewal refused: one error, batch nothing
#       15.0.3, delete refused: one error, batch error
#       15.0.3, renewal refused: one error, batch error
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1169.0 \
  consumer-11@npm:sqs-consumer@11.6.0 consumer-14@npm:sqs-consumer@14.2.8 consumer-15@npm:sqs-consumer@15.0.3 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { SQSClient } from "@aws-sdk/client-sqs";

const CODE = "ReceiptHandleIsInvalid";
const MESSAGE = { MessageId: "1", ReceiptHandle: "h", Body: "a", MD5OfBody: "0cc175b9c0f1b6a831c399e269772661" };
let refused, received;

// One message; then the refused operation is answered as SQS does it, alone or in a batch.
function answer(operation) {
  if (operation === "ReceiveMessage") return [200, received++ ? {} : { Messages: [MESSAGE] }];
  if (!operation.startsWith(refused)) return [200, { Successful: [{ Id: "1" }], Failed: [] }];
  if (!operation.endsWith("Batch")) return [400, { __type: `com.amazonaws.sqs#${CODE}`, message: "" }];
  return [200, { Successful: [], Failed: [{ Id: "1", SenderFault: true, Code: CODE }] }];
}

const server = createServer((request, response) => {
  request.resume().on("end", () => {
    const [status, body] = answer(request.headers["x-amz-target"].split(".")[1]);
    response.writeHead(status, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(body));
  });
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqs = new SQSClient({ region: "us-east-1", endpoint, credentials });

async function run(Consumer, handler, operation) {
  [refused, received] = [operation, 0];
  // A renewal comes each second, and only errors count then.
  const renewal = operation === "ChangeMessageVisibility";
  const handle = async (given) => (renewal ? sleep(1800, given) : given);
  const lease = renewal ? { visibilityTimeout: 30, heartbeatInterval: 1 } : {};
  const queueUrl = `${endpoint}/1/q.fifo`;
  const consumer = Consumer.create({ queueUrl, sqs, suppressFifoWarning: true, [handler]: handle, ...lease });
  const seen = new Set();
  for (const event of renewal ? ["error"] : ["error", "message_processed"]) consumer.on(event, () => seen.add(event));
  const handled = new Promise((done) => consumer.on("response_processed", done));
  consumer.start();
  await handled;
  consumer.stop();
  return [...seen].sort().join(" ") || "nothing";
}

const ends = [];
for (const name of ["consumer-11", "consumer-14", "consumer-15"]) {
  const { Consumer } = await import(name);
  const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`));
  for (const [what, operation] of [["delete", "DeleteMessage"], ["renewal", "ChangeMessageVisibility"]]) {
    const one = await run(Consumer, "handleMessage", operation);
    const batch = await run(Consumer, "handleMessageBatch", operation);
    ends.push(`one ${one}, batch ${batch}`);
    console.log(`${version}, ${what} refused: ${ends.at(-1)}`);
  }
}
const silent = ["one error, batch message_processed", "one error, batch nothing"];
const expected = [...silent, ...silent, "one error, batch error", "one error, batch error"];
process.exit(ends.join("|") === expected.join("|") ? 0 : 1);
JS
node run.mjs 2>/dev/null
