#!/usr/bin/env bash
# sns-sqs-big-payload 0.1.4 (npm) with aws-sdk 2.1693.0
# Bet: a payload that S3 does not give is an error of the message: `s3-payload-error` is emitted, the handler is not called,
#   and the message stays on the queue and comes back, as with an error of the handler.
# Behaviour: the event is emitted, and then the handler is called with the pointer as its payload, as if nothing had
#   happened, and the message is deleted. It makes no difference whether S3 is throttling or refuses access.
# Cost: while S3 is out of reach for some seconds each large message is taken, handled as a small object of the wrong shape
#   and deleted; only the object in the bucket is left. JSON.parse, as in the README, takes the pointer. A handler must
#   look whether `s3PayloadMeta` is missing where the message has a pointer, and throw.
# Seen: S3 answers: handler got the payload, message deleted, events none
#       SlowDown: handler got the pointer, message deleted, events s3-payload-error
#       AccessDenied: handler got the pointer, message deleted, events s3-payload-error
#       S3 answers, handler throws: handler got the payload, message kept, events processing-error
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund aws-sdk@2.1693.0 sns-sqs-big-payload@0.1.4 >/dev/null 2>&1
cat > run.cjs <<'JS'
const { createHash } = require("node:crypto");
const { once } = require("node:events");
const { createServer } = require("node:http");
const AWS = require("aws-sdk");
const { SqsConsumer } = require("sns-sqs-big-payload");

const PAYLOAD = JSON.stringify({ amount: 1 });
const POINTER = JSON.stringify({ S3Payload: { Id: "payload", Bucket: "payloads", Key: "payload.json", Location: "" } });
const STATUS = { SlowDown: 503, AccessDenied: 403 };
let refusal, deleted, taken;

// SQS with one message, and S3 with its payload, which it refuses with the code `refusal`.
function answer({ method, headers }) {
  if (method === "GET") return refusal ? [STATUS[refusal], `<Error><Code>${refusal}</Code></Error>`] : [200, PAYLOAD];
  if (headers["x-amz-target"] === "AmazonSQS.DeleteMessage") deleted = true;
  if (headers["x-amz-target"] !== "AmazonSQS.ReceiveMessage" || taken) return [200, "{}"];
  taken = true;
  const MD5OfBody = createHash("md5").update(POINTER).digest("hex");
  return [200, JSON.stringify({ Messages: [{ MessageId: "1", ReceiptHandle: "r", Body: POINTER, MD5OfBody }] })];
}

async function run(what, { refuse, fail = false }) {
  [refusal, deleted, taken] = [refuse, false, false];
  const events = [];
  let got = "nothing";
  const consumer = SqsConsumer.create({
    queueUrl: `${endpoint}/1/payments.fifo`,
    sqs: new AWS.SQS(options),
    s3: new AWS.S3({ ...options, s3ForcePathStyle: true }),
    getPayloadFromS3: true,
    parsePayload: (raw) => JSON.parse(raw),
    handleMessage: async ({ payload }) => {
      got = payload.S3Payload ? "the pointer" : "the payload";
      if (fail) throw new Error("not now");
    },
  });
  for (const name of ["s3-payload-error", "processing-error", "error"]) consumer.on(name, () => events.push(name));
  consumer.on("batch-processed", () => consumer.stop());
  const end = new Promise((resolve) => consumer.on("poll-ended", resolve));
  consumer.start();
  await end;
  const seen = `handler got ${got}, message ${deleted ? "deleted" : "kept"}, events ${events.join(" ") || "none"}`;
  console.log(`${what}: ${seen}`);
  return seen;
}

let endpoint, options;
async function main() {
  const server = createServer(async (request, response) => {
    for await (const _ of request);
    const [status, body] = answer(request);
    response.writeHead(status).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  endpoint = `http://127.0.0.1:${server.address().port}`;
  options = { region: "us-east-1", endpoint, accessKeyId: "a", secretAccessKey: "b" };
  const seen = [
    await run("S3 answers", {}),
    await run("SlowDown", { refuse: "SlowDown" }),
    await run("AccessDenied", { refuse: "AccessDenied" }),
    await run("S3 answers, handler throws", { fail: true }),
  ];
  const lost = "handler got the pointer, message deleted, events s3-payload-error";
  const right = "handler got the payload, message deleted, events none";
  const kept = "handler got the payload, message kept, events processing-error";
  process.exit(seen.join() === [right, lost, lost, kept].join() ? 0 : 1);
}
main();
JS
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy \
  AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE=1 node --no-warnings run.cjs
