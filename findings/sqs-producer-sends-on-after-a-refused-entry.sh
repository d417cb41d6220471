#!/usr/bin/env bash
# sqs-producer 8.0.4 (npm) on a FIFO queue
# Bet: send() stops at the batch in which SQS has refused an entry, so that the caller can go on from there in order; with
#   batchSize 1 nothing of the group passes a refused message.
# Behaviour: it sends all batches that follow and raises FailedMessagesError at its end. When a later batch fails as a
#   whole, send() raises the error of that batch alone: it has no failedMessages, and nothing names the refused entry.
# Cost: what the caller sends again, as failedMessages asks for it, comes behind all later messages of its group, for
#   good. In the second case a caller that goes on behind the last message at SQS loses the refused one. Smaller batches
#   do not help: call send() once for each message of a group.
# Seen: no entry refused: sent, at SQS 0 1 2 3 4 5 6 7 8 9 10 11
#       1 refused, then sent again: failedMessages 1, at SQS 0 2 3 4 5 6 7 8 9 10 11 1
#       1 refused, then sent again, batchSize 1: failedMessages 1, at SQS 0 2 3 4 5 6 7 8 9 10 11 1
#       1 refused, second batch throttled: KmsThrottled, failedMessages undefined, at SQS 0 2 3 4 5 6 7 8 9
#       1 refused, one message at a time: failedMessages 1, at SQS 0 1 2 3 4 5 6 7 8 9 10 11
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1175.0 sqs-producer@8.0.4 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { SQSClient } from "@aws-sdk/client-sqs";
import { Producer } from "sqs-producer";

let queue, refused, throttled;

// Answers as SQS does: it refuses the entry `refused` once, and each batch that has the entry `throttled`.
function answer(entries) {
  if (entries.some(({ Id }) => Id === throttled)) return [400, { __type: "com.amazonaws.sqs#KmsThrottled", message: "" }];
  const failed = entries.filter(({ Id }) => Id === refused);
  if (failed.length) refused = undefined;
  const taken = entries.filter((entry) => !failed.includes(entry));
  queue.push(...taken.map(({ Id }) => Id));
  const md5 = (text) => createHash("md5").update(text).digest("hex");
  return [200, {
    Successful: taken.map(({ Id, MessageBody }) => ({ Id, MessageId: Id, MD5OfMessageBody: md5(MessageBody) })),
    Failed: failed.map(({ Id }) => ({ Id, Code: "InternalError", SenderFault: false })),
  }];
}

const server = createServer(async (request, response) => {
  const chunks = await request.toArray();
  const [status, body] = answer(JSON.parse(Buffer.concat(chunks)).Entries);
  response.writeHead(status, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(body));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqs = new SQSClient({ region: "us-east-1", endpoint, credentials });
const messages = Array.from({ length: 12 }, (_, number) => {
  const id = String(number);
  return { id, body: `payment ${id}`, groupId: "customer", deduplicationId: id };
});

async function run({ refuse, throttle, batchSize = 10, single = false }) {
  [queue, refused, throttled] = [[], refuse, throttle];
  const producer = Producer.create({ queueUrl: `${endpoint}/1/payments.fifo`, sqs, batchSize });
  let end = "sent";
  for (const part of single ? messages.map((message) => [message]) : [messages]) {
    try {
      await producer.send(part);
    } catch (error) {
      end = `${error.name === "Error" ? "failedMessages" : error.name + ", failedMessages"} ${error.failedMessages}`;
      const again = part.filter(({ id }) => error.failedMessages?.includes(id));
      if (again.length) await producer.send(again);
    }
  }
  return `${end}, at SQS ${queue.join(" ")}`;
}

const seen = {
  "no entry refused": await run({}),
  "1 refused, then sent again": await run({ refuse: "1" }),
  "1 refused, then sent again, batchSize 1": await run({ refuse: "1", batchSize: 1 }),
  "1 refused, second batch throttled": await run({ refuse: "1", throttle: "10" }),
  "1 refused, one message at a time": await run({ refuse: "1", single: true }),
};
for (const [what, end] of Object.entries(seen)) console.log(`${what}: ${end}`);
const [all, behind] = ["0 1 2 3 4 5 6 7 8 9 10 11", "failedMessages 1, at SQS 0 2 3 4 5 6 7 8 9 10 11 1"];
const failure = "KmsThrottled, failedMessages undefined, at SQS 0 2 3 4 5 6 7 8 9";
const expected = [`sent, at SQS ${all}`, behind, behind, failure, `failedMessages 1, at SQS ${all}`];
process.exit(JSON.stringify(Object.values(seen)) === JSON.stringify(expected) ? 0 : 1);
JS
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy node --no-warnings run.mjs
