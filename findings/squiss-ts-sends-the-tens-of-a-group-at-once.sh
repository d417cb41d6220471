#!/usr/bin/env bash
# squiss-ts 5.6.0 (npm)
# Bet: sendMessages() takes any number of messages, splits them into batches of ten, and sends one after the other: what it
#   is given as a list comes into the queue in the order of the list, and a FIFO queue keeps that.
# Behaviour: all batches are sent at once. The one that arrives first is first in its group, and one that fails, or that
#   the SDK sends again, does not stop those behind it. The result is in the order of the list all the same.
# Cost: a FIFO queue takes that order for the order of the group, for good: "cancelled" before "paid", with no error and
#   nothing in the result. Send at most ten messages of a group in a call, and wait for its end.
# Seen: begun before any was answered: 3 of 3 batches
#       order in the queue: 20-24, 10-19, 0-9
#       order in the result: 0-24
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund squiss-ts@5.6.0 @aws-sdk/client-sqs@3.1169.0 @aws-sdk/client-s3@3.1169.0 \
  >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createServer } from "node:http";
import { SQS } from "@aws-sdk/client-sqs";
import { Squiss } from "squiss-ts";

const BATCHES = 3;
const begun = [];
const queue = [];
let answered = 0;
let before = 0;

// SQS as of a network in which the batch that was sent last arrives first: it takes the batches once all are on their
// way, or after three seconds without another.
function take() {
  before = answered ? before : begun.length;
  for (const { entries, respond } of begun.splice(0).reverse()) {
    queue.push(entries);
    answered += 1;
    respond({ Successful: entries.map(({ Id }) => ({ Id, MessageId: Id })), Failed: [] });
  }
}

let timer;
const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const respond = (answer) =>
    response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(answer));
  if (!request.headers["x-amz-target"].endsWith(".SendMessageBatch")) {
    respond({ Attributes: { MaximumMessageSize: "1048576" } });
    return;
  }
  const entries = JSON.parse(text).Entries;
  if (entries.some(({ MessageGroupId }) => MessageGroupId !== "order-1")) throw new Error("another group");
  begun.push({ entries, respond });
  clearTimeout(timer);
  if (begun.length === BATCHES) take();
  else timer = setTimeout(take, 3000);
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqs = new SQS({ region: "us-east-1", endpoint, credentials, md5: false });
const squiss = new Squiss({ SQS: sqs, queueUrl: `${endpoint}/1/orders.fifo` });
const messages = [...Array(25).keys()].map(String);
const attributes = messages.map((body) => ({ FIFO_MessageGroupId: "order-1", FIFO_MessageDeduplicationId: body }));
const { Successful: sent } = await squiss.sendMessages(messages, 0, attributes);
server.closeAllConnections();
server.close();

// Runs of numbers that rise by one.
function runs(numbers) {
  const all = [];
  for (const number of numbers) {
    if (all.length && all.at(-1)[1] === number - 1) all.at(-1)[1] = number;
    else all.push([number, number]);
  }
  return all;
}
const inBatches = (ids) => ids.map((batch) => runs(batch).map((run) => run.join("-")).join(" ")).join(", ");
const bodies = queue.map((entries) => entries.map(({ MessageBody }) => Number(MessageBody)));
const result = sent.map(({ Id }) => Number(Id));
const seen = [`${before} of ${BATCHES} batches`, inBatches(bodies), runs(result).map((run) => run.join("-")).join(", ")];
["begun before any was answered", "order in the queue", "order in the result"].forEach((what, at) => {
  console.log(`${what}: ${seen[at]}`);
});
process.exit(seen.join("|") === ["3 of 3 batches", "20-24, 10-19, 0-9", "0-24"].join("|") ? 0 : 1);
JS
node run.mjs 2>log || { tail -5 log >&2; exit 1; }
