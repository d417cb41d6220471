#!/usr/bin/env bash
# @aws-lambda-powertools/batch 2.35.0 (npm), SqsFifoPartialProcessor
# Bet: with an async record handler, as in the example for FIFO queues in its own documentation of
#   processPartialResponseSync, a message whose handler rejects is reported as failed, and so are those after it.
# Behaviour: the promise is not awaited. The handlers of all messages begin at once, each message counts as done when its
#   handler has returned the promise, and the response names no failure, before any of the work is done. The types allow
#   it, for the handler is any CallableFunction.
# Cost: Lambda deletes the whole batch: a payment that then fails is lost, and the next one of its group was begun before it
#   had ended. All is well in a test whose handler awaits nothing and throws nothing. Take SqsFifoPartialProcessorAsync
#   with processPartialResponse.
# Seen: sync handler, SqsFifoPartialProcessor: began 1 2, failed 2 3
#       async handler, SqsFifoPartialProcessor: began 1 2 3, failed none, then 2 rejected
#       async handler, SqsFifoPartialProcessorAsync: began 1 2, failed 2 3
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-lambda-powertools/batch@2.35.0 >/dev/null 2>&1
cat > run.mjs <<'JS'
import {
  SqsFifoPartialProcessor,
  SqsFifoPartialProcessorAsync,
  processPartialResponse,
  processPartialResponseSync,
} from "@aws-lambda-powertools/batch";

const event = { Records: ["1", "2", "3"].map(record) };
let began;

function record(id) {
  const attributes = {
    ApproximateFirstReceiveTimestamp: "1795860000001",
    ApproximateReceiveCount: "1",
    MessageDeduplicationId: id,
    MessageGroupId: "account-7",
    SenderId: "sender",
    SentTimestamp: "1795860000000",
    SequenceNumber: id.padStart(20, "0"),
  };
  const source = { eventSource: "aws:sqs", awsRegion: "us-east-1" };
  const eventSourceARN = "arn:aws:sqs:us-east-1:123456789012:payments.fifo";
  return { messageId: id, receiptHandle: "h", body: id, md5OfBody: "", attributes, messageAttributes: {}, eventSourceARN, ...source };
}

function pay({ body }) {
  began.push(body);
  if (body === "2") throw new Error("refused by the bank");
}

const bank = () => new Promise((answered) => setImmediate(answered));

async function payAsync({ body }) {
  began.push(body);
  await bank();
  if (body === "2") throw new Error("refused by the bank");
}

// What comes after the response has nobody who awaits it.
const rejection = new Promise((seen) => process.on("unhandledRejection", () => seen()));

async function run(what, handle) {
  began = [];
  const { batchItemFailures } = await handle();
  const failed = batchItemFailures.map(({ itemIdentifier }) => itemIdentifier).join(" ") || "none";
  const seen = `began ${began.join(" ")}, failed ${failed}`;
  const rejected = failed === "none";
  if (rejected) await rejection;
  ends.push(rejected ? `${seen}, then 2 rejected` : seen);
  console.log(`${what}: ${ends.at(-1)}`);
}

const ends = [];
await run("sync handler, SqsFifoPartialProcessor", () =>
  processPartialResponseSync(event, pay, new SqsFifoPartialProcessor()));
await run("async handler, SqsFifoPartialProcessor", () =>
  processPartialResponseSync(event, payAsync, new SqsFifoPartialProcessor()));
await run("async handler, SqsFifoPartialProcessorAsync", () =>
  processPartialResponse(event, payAsync, new SqsFifoPartialProcessorAsync()));
const reported = "began 1 2, failed 2 3";
const expected = [reported, "began 1 2 3, failed none, then 2 rejected", reported];
process.exit(ends.join("|") === expected.join("|") ? 0 : 1);
JS
node run.mjs
