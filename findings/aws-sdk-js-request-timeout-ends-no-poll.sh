#!/usr/bin/env bash
# @aws-sdk/client-sqs 3.1175.0 (npm) with its @smithy/node-http-handler 4.14.2, and with the handler's version 4.1.1
# Bet: requestTimeout ends a call that has no answer after that time with TimeoutError, as its name says, and the SDK
#   tries it again.
# Behaviour: it did so up to 4.1.1. Now the call goes on, without an end of its own, and one warning goes to the logger.
#   Only throwOnRequestTimeout beside it, or socketTimeout, ends the call. A client of 3.887.0 takes the new handler as
#   well, for it asks for a range of versions.
# Cost: a consumer that set requestTimeout above WaitTimeSeconds, so that a poll on a connection gone silent ends, has
#   lost that by an upgrade of a package it does not name: it waits for good, and raises nothing. A renewal that hangs is
#   not tried again before the messages are somebody else's.
# Seen: requestTimeout, handler 4.1.1: TimeoutError after 3 requests
#       requestTimeout: waits until the server answers, 1 request, 1 warning
#       requestTimeout, client 3.887.0: waits until the server answers, 1 request, 1 warning
#       requestTimeout and throwOnRequestTimeout: TimeoutError after 3 requests
#       socketTimeout: TimeoutError after 3 requests
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1175.0 client-887@npm:@aws-sdk/client-sqs@3.887.0 \
  @smithy/node-http-handler@4.14.2 handler-411@npm:@smithy/node-http-handler@4.1.1 >/dev/null 2>&1
cat > run.mjs <<'JS'
import { createServer } from "node:http";
import * as now from "@aws-sdk/client-sqs";
import * as old from "client-887";
import { NodeHttpHandler } from "handler-411";

const TIMEOUT = 200;
const MESSAGE = { MessageId: "1", ReceiptHandle: "h", Body: "a", MD5OfBody: "0cc175b9c0f1b6a831c399e269772661" };
let waiting = [];
let requests = 0;

// A poll has its answer only when `answer` is called.
const server = createServer((request, response) => {
  requests++;
  waiting.push(response);
  request.resume();
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };

function answer() {
  for (const response of waiting.splice(0)) {
    response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" });
    response.end(JSON.stringify({ Messages: [MESSAGE] }));
  }
}

async function poll({ SQSClient, ReceiveMessageCommand }, requestHandler) {
  [waiting, requests] = [[], 0];
  let warnings = 0;
  const nothing = () => {};
  // The server answers ten timeouts after the warning, so that a call that is to end has ended before.
  const warn = () => warnings++ || setTimeout(answer, 10 * TIMEOUT);
  const logger = { trace: nothing, debug: nothing, info: nothing, warn, error: nothing };
  const sqs = new SQSClient({ region: "us-east-1", endpoint, credentials, requestHandler, logger });
  try {
    const { Messages } = await sqs.send(new ReceiveMessageCommand({ QueueUrl: `${endpoint}/1/q.fifo` }));
    const end = Messages[0].Body === "a" ? "waits until the server answers" : "another answer";
    return `${end}, ${requests} request, ${warnings} warning`;
  } catch (error) {
    return `${error.name} after ${requests} requests`;
  }
}

const seen = {
  "requestTimeout, handler 4.1.1": await poll(now, new NodeHttpHandler({ requestTimeout: TIMEOUT })),
  "requestTimeout": await poll(now, { requestTimeout: TIMEOUT }),
  "requestTimeout, client 3.887.0": await poll(old, { requestTimeout: TIMEOUT }),
  "requestTimeout and throwOnRequestTimeout": await poll(now, { requestTimeout: TIMEOUT, throwOnRequestTimeout: true }),
  "socketTimeout": await poll(now, { socketTimeout: TIMEOUT }),
};
for (const [options, end] of Object.entries(seen)) console.log(`${options}: ${end}`);
const ended = "TimeoutError after 3 requests";
const waits = "waits until the server answers, 1 request, 1 warning";
process.exit(JSON.stringify(Object.values(seen)) === JSON.stringify([ended, waits, waits, ended, ended]) ? 0 : 1);
JS
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy node --no-warnings run.mjs
