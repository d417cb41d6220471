#!/usr/bin/env bash
# local-aws-sqs 2.0.2 (npm), with @aws-sdk/client-sqs 3.1169.0
# Bet: a long poll answers as soon as a message is there, whatever number it asks for, as on SQS.
# Behaviour: it answers once it has as many as it asked for, or its time is over.
# Cost: a consumer that asks for ten, with the usual wait of 20 s, gets each message 20 s late: tests of it time out, or set
#   the wait to 0 or the number to 1, and then test another loop than the one that runs.
# Seen: asks for 1, a message before it: answered with 1 after 0 s
#       asks for 1, a message after 1 s: answered with 1 after 1 s
#       asks for 10, a message before it: answered with 1 after 6 s
#       asks for 10, a message after 1 s: answered with 1 after 6 s
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund local-aws-sqs@2.0.2 @aws-sdk/client-sqs@3.1169.0 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createServer } from "node:net";
import { setTimeout } from "node:timers/promises";
import { SQS } from "@aws-sdk/client-sqs";
import { createSqsServer } from "local-aws-sqs";

const free = createServer();
await new Promise((ready) => free.listen(0, "localhost", ready));
const port = free.address().port;
await new Promise((done) => free.close(done));
await createSqsServer({ port });
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqs = new SQS({ region: "us-east-1", endpoint: `http://localhost:${port}`, credentials });
const seen = [];

async function queue(name) {
  return (await sqs.createQueue({ QueueName: `${name}.fifo`, Attributes: { FifoQueue: "true" } })).QueueUrl;
}

async function send(url, body) {
  await sqs.sendMessage({ QueueUrl: url, MessageBody: body, MessageGroupId: "g", MessageDeduplicationId: body });
}

async function poll(most, isThere) {
  const url = await queue(`q-${most}-${isThere}`);
  if (isThere) await send(url, "1");
  const began = performance.now();
  const asked = { QueueUrl: url, MaxNumberOfMessages: most, WaitTimeSeconds: 6 };
  const answer = sqs.receiveMessage(asked).then(({ Messages }) => [Messages[0].Body, performance.now() - began]);
  await setTimeout(1000);
  if (!isThere) await send(url, "1");
  const [body, took] = await answer;
  seen.push(Math.round(took / 1000));
  const when = isThere ? "before it" : "after 1 s";
  console.log(`asks for ${most}, a message ${when}: answered with ${body} after ${seen.at(-1)} s`);
}

for (const most of [1, 10]) for (const isThere of [true, false]) await poll(most, isThere);
process.exit(seen.join() === "0,1,6,6" ? 0 : 1);

JS
node run.mjs 2>/dev/null
