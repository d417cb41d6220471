#!/usr/bin/env bash
# local-aws-sqs 2.0.2 (npm), with @aws-sdk/client-sqs 3.1169.0
# Bet: a local SQS that takes FifoQueue, refuses a send without a group, and drops what was sent twice, also gives nothing
#   of a group while one of its messages is in flight.
# Behaviour: a second receive gets the next message of the group at once. The first one, given back, comes again together
#   with the third, while the second is still at work. MessageSystemAttributeNames, today's name of AttributeNames, is
#   ignored, so a consumer that uses it sees no group and no sequence number.
# Cost: two consumers of one queue work on one group at the same time in a test, and never on SQS; one that falls back to
#   a default group when it sees none puts all messages in one order. A test of order tests something else.
# Seen: sent twice: 1 message
#       without a group: refused
#       while 1 is in flight: received 2
#       after 1 is given back: received 1 3
#       MessageSystemAttributeNames: no attributes
#       AttributeNames: MessageGroupId, SequenceNumber
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund local-aws-sqs@2.0.2 @aws-sdk/client-sqs@3.1169.0 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createServer } from "node:net";
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

function note(what, end) {
  seen.push(end);
  console.log(`${what}: ${end}`);
}

async function queue(name) {
  const Attributes = { FifoQueue: "true" };
  return (await sqs.createQueue({ QueueName: name, Attributes })).QueueUrl;
}

async function send(url, body) {
  const ids = { MessageGroupId: "g", MessageDeduplicationId: body };
  await sqs.sendMessage({ QueueUrl: url, MessageBody: body, ...ids });
}

async function receive(url, most, names = {}) {
  const asked = { QueueUrl: url, MaxNumberOfMessages: most, VisibilityTimeout: 60, ...names };
  return (await sqs.receiveMessage(asked)).Messages ?? [];
}

const bodies = (messages) => `received ${messages.map((message) => message.Body).join(" ") || "nothing"}`;
const names = ([message]) => Object.keys(message.Attributes ?? {}).sort().join(", ") || "no attributes";

let url = await queue("twice.fifo");
await send(url, "1");
await send(url, "1");
note("sent twice", `${(await receive(url, 10)).length} message`);
const refused = sqs.sendMessage({ QueueUrl: url, MessageBody: "2", MessageDeduplicationId: "2" });
note("without a group", await refused.then(() => "taken", () => "refused"));

url = await queue("order.fifo");
for (const body of ["1", "2", "3"]) await send(url, body);
const [first] = await receive(url, 1);
note("while 1 is in flight", bodies(await receive(url, 1)));
await sqs.changeMessageVisibility({ QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0 });
note("after 1 is given back", bodies(await receive(url, 10)));

url = await queue("names.fifo");
await send(url, "1");
await send(url, "2");
for (const name of ["MessageSystemAttributeNames", "AttributeNames"]) {
  note(name, names(await receive(url, 1, { [name]: ["MessageGroupId", "SequenceNumber"] })));
}
const order = ["1 message", "refused", "received 2", "received 1 3"];
const expected = [...order, "no attributes", "MessageGroupId, SequenceNumber"];
process.exit(seen.join("|") === expected.join("|") ? 0 : 1);
JS
node run.mjs 2>/dev/null
