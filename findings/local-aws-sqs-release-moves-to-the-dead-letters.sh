#!/usr/bin/env bash
# local-aws-sqs 2.0.2 (npm), with @aws-sdk/client-sqs 3.1169.0
# Bet: with maxReceiveCount 3 a message is received three times, and the fourth receive moves it to the dead-letter queue,
#   whether its visibility timeout lapsed or was set to 0.
# Behaviour: so it is where the timeout lapses. A message that is given back with a timeout of 0 counts one more: it is in
#   the dead-letter queue after the second receive, and with 2 after the first, at once, before anybody has asked again.
# Cost: a consumer that gives back what failed has one try fewer in tests than on SQS, and with maxReceiveCount 2 none: a
#   test of the second try fails for a consumer that is right.
# Seen: 3 receives allowed, lapsed: received 3 times, then dead
#       3 receives allowed, given back: received 2 times, then dead
#       2 receives allowed, given back: received 1 times, then dead
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

const LAPSE_S = 1, PAUSE_MS = 1500, MOST = 6;
const free = createServer();
await new Promise((ready) => free.listen(0, "localhost", ready));
const port = free.address().port;
await new Promise((done) => free.close(done));
await createSqsServer({ port });
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const sqs = new SQS({ region: "us-east-1", endpoint: `http://localhost:${port}`, credentials });
const seen = [];

async function queue(name, more = {}) {
  return (await sqs.createQueue({ QueueName: `${name}.fifo`, Attributes: { FifoQueue: "true", ...more } })).QueueUrl;
}

async function receive(url, seconds) {
  return (await sqs.receiveMessage({ QueueUrl: url, VisibilityTimeout: seconds })).Messages ?? [];
}

async function tries(name, allowed, givesBack) {
  const dead = await queue(`${name}-dead`);
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl: dead, AttributeNames: ["QueueArn"] });
  const policy = JSON.stringify({ deadLetterTargetArn: Attributes.QueueArn, maxReceiveCount: allowed });
  const url = await queue(name, { RedrivePolicy: policy });
  await sqs.sendMessage({ QueueUrl: url, MessageBody: "1", MessageGroupId: "g", MessageDeduplicationId: "1" });
  let count = 0;
  for (; count < MOST; count++) {
    const [message] = await receive(url, givesBack ? 60 : LAPSE_S);
    if (!message) break;
    const handle = { QueueUrl: url, ReceiptHandle: message.ReceiptHandle };
    if (givesBack) await sqs.changeMessageVisibility({ ...handle, VisibilityTimeout: 0 });
    else await setTimeout(PAUSE_MS);
  }
  const where = (await receive(dead, 60)).length ? "dead" : "nowhere";
  seen.push(`received ${count} times, then ${where}`);
  console.log(`${allowed} receives allowed, ${givesBack ? "given back" : "lapsed"}: ${seen.at(-1)}`);
}

await tries("lapsed", 3, false);
await tries("back", 3, true);
await tries("two", 2, true);
const expected = ["received 3 times, then dead", "received 2 times, then dead", "received 1 times, then dead"];
process.exit(seen.join() === expected.join() ? 0 : 1);
JS
node run.mjs 2>/dev/null
