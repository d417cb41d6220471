#!/usr/bin/env bash
# @backstage/plugin-events-backend-module-aws-sqs 0.4.26 with @backstage/plugin-events-node 0.4.26 (npm)
# Bet: each message is deleted when the subscribers of its event are through with it.
# Behaviour: publish() in one process awaits no subscriber. All messages of a receive are deleted while the subscribers
#   are still at work, and also when one fails, which is a line in the log.
# Cost: a restart or a crash of Backstage loses the events that its subscribers have under way, a failure the event that
#   failed, and a dead-letter queue never gets one, whatever maxReceiveCount is. Let a subscriber only write the event to
#   a table, and work from that.
# Seen: subscriber is slow: begins 1, begins 2, deleted 1 2, ends 1, ends 2
#       subscriber fails: begins 1, begins 2, deleted 1 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @backstage/plugin-events-backend-module-aws-sqs@0.4.26 \
  @backstage/plugin-events-node@0.4.26 @backstage/config@1.3.9 @aws-sdk/client-sqs@3.1169.0 >/dev/null 2>&1
cat > run.cjs <<'JS'
const { createHash } = require("node:crypto");
const { createServer } = require("node:http");
const { ConfigReader } = require("@backstage/config");
const { DefaultEventsService } = require("@backstage/plugin-events-node");

const MODULE = "./node_modules/@backstage/plugin-events-backend-module-aws-sqs/dist/publisher";
const { AwsSqsConsumingEventPublisher } = require(`${MODULE}/AwsSqsConsumingEventPublisher.cjs.js`);

const md5 = (text) => createHash("md5").update(text).digest("hex");
let queue, seen;

function answer(operation, given) {
  if (operation === "ReceiveMessage") return { Messages: queue };
  const ids = given.Entries.map(({ Id }) => Id);
  queue = queue.filter(({ MessageId }) => !ids.includes(MessageId));
  seen.push(`deleted ${ids.join(" ")}`);
  return { Successful: ids.map((Id) => ({ Id })), Failed: [] };
}

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const given = answer(request.headers["x-amz-target"].split(".")[1], JSON.parse(text));
  response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(given));
});

const ignore = () => {};
const logger = { debug: ignore, info: ignore, warn: ignore, error: ignore, child: () => logger };

// Publishes two events of one receive, with one subscriber, and resolves when that one is through.
async function run(subscriber) {
  queue = ["1", "2"].map((Body, at) => ({ MessageId: `${at + 1}`, ReceiptHandle: "h", Body, MD5OfBody: md5(Body) }));
  seen = [];
  const events = DefaultEventsService.create({ logger, useEventBus: "never" });
  const under = [];
  const onEvent = (event) => {
    under.push(subscriber(event.eventPayload));
    return under.at(-1);
  };
  await events.subscribe({ id: "subscriber", topics: ["orders"], onEvent });
  const url = `http://127.0.0.1:${server.address().port}`;
  const sqs = { url: `${url}/1/orders.fifo`, region: "us-east-1", endpoint: url };
  const orders = { queue: sqs, waitTimeAfterEmptyReceive: { seconds: 0 } };
  const topics = { awsSqs: { awsSqsConsumingEventPublisher: { topics: { orders } } } };
  const config = new ConfigReader({ events: { modules: topics } });
  const scheduler = {
    async scheduleTask({ fn }) {
      await fn();
    },
  };
  for (const publisher of AwsSqsConsumingEventPublisher.fromConfig({ config, events, logger, scheduler })) {
    await publisher.start();
  }
  await Promise.allSettled(under);
  return seen;
}

async function main() {
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const slow = await run(async (number) => {
    seen.push(`begins ${number}`);
    const until = Date.now() + 5000;
    // Until the delete has come, and for five seconds at the most.
    while (!seen.some((entry) => entry.startsWith("deleted")) && Date.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    seen.push(`ends ${number}`);
  });
  const failing = await run(async (number) => {
    seen.push(`begins ${number}`);
    throw new Error("not now");
  });
  const ends = {
    "subscriber is slow": slow.join(", "),
    "subscriber fails": failing.join(", "),
  };
  for (const [what, end] of Object.entries(ends)) console.log(`${what}: ${end}`);
  const begins = "begins 1, begins 2, deleted 1 2";
  const expected = [`${begins}, ends 1, ends 2`, begins];
  process.exit(Object.values(ends).join("|") === expected.join("|") ? 0 : 1);
}
main();
JS
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b
node run.cjs 2>log || { tail -5 log >&2; exit 1; }
