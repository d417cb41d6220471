#!/usr/bin/env bash
# @ssut/nestjs-sqs 3.0.1 (npm) with sqs-consumer 11.6.0, which it brings, and NestJS 11.1.6 (known: its pull request
#   107)
# Bet: app.close() ends when the handler under way has ended and its message is deleted, as NestJS waits for its
#   modules, all the more with pollingCompleteWaitTimeMs, the consumer's time to wait for that at a stop.
# Behaviour: the module calls stop() and returns. All hooks run and close() resolves while the handler is at work. The
#   delete comes when the handler ends, if the process still lives then.
# Cost: enableShutdownHooks ends the process as soon as close() is through. So each deployment cuts off what is under
#   way: work that was done is not deleted, its group stands still for the rest of the visibility timeout, and then it
#   is done twice. What other modules close in a hook, such as a database, is gone below the handler. Set
#   pollingCompleteWaitTimeMs, and wait in beforeApplicationShutdown for the event `stopped` (@SqsConsumerEventHandler).
# Seen: handler begins, onModuleDestroy, beforeApplicationShutdown, onApplicationShutdown, close() resolves, handler ends,
#         DeleteMessage
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @ssut/nestjs-sqs@3.0.1 sqs-consumer@11.6.0 @nestjs/core@11.1.6 \
  @nestjs/common@11.1.6 reflect-metadata@0.2.2 rxjs@7.8.2 @aws-sdk/client-sqs@3.1169.0 >/dev/null 2>&1
cat > run.cjs <<'JS'
require("reflect-metadata");
const { createServer } = require("node:http");
const { SQSClient } = require("@aws-sdk/client-sqs");
const { Module } = require("@nestjs/common");
const { NestFactory } = require("@nestjs/core");
const { SqsMessageHandler, SqsModule } = require("@ssut/nestjs-sqs");

const MESSAGE = { MessageId: "1", ReceiptHandle: "h", Body: "a", MD5OfBody: "0cc175b9c0f1b6a831c399e269772661" };
const seen = [];
const gate = () => {
  let open;
  const passed = new Promise((resolve) => (open = resolve));
  return { open, passed };
};
const [begun, work, deleted] = [gate(), gate(), gate()];

// One message, and then none.
let received = 0;
const server = createServer((request, response) => {
  request.resume().on("end", () => {
    const operation = request.headers["x-amz-target"].split(".")[1];
    const answer = operation === "ReceiveMessage" && !received++ ? { Messages: [MESSAGE] } : {};
    response.writeHead(200, { "Content-Type": "application/x-amz-json-1.0" }).end(JSON.stringify(answer));
    if (operation === "ReceiveMessage") return;
    seen.push(operation);
    deleted.open();
  });
});

class Orders {
  async handle() {
    seen.push("handler begins");
    begun.open();
    await work.passed;
    seen.push("handler ends");
  }
}
for (const hook of ["onModuleDestroy", "beforeApplicationShutdown", "onApplicationShutdown"]) {
  Orders.prototype[hook] = () => seen.push(hook);
}
const handle = Object.getOwnPropertyDescriptor(Orders.prototype, "handle");
SqsMessageHandler("orders", false)(Orders.prototype, "handle", handle);

async function main() {
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const endpoint = `http://127.0.0.1:${server.address().port}`;
  const credentials = { accessKeyId: "a", secretAccessKey: "b" };
  const sqs = new SQSClient({ region: "us-east-1", endpoint, credentials });
  const queue = { name: "orders", queueUrl: `${endpoint}/1/orders.fifo`, sqs, suppressFifoWarning: true };
  const consumers = [{ ...queue, pollingCompleteWaitTimeMs: 60000 }];
  class App {}
  Module({ imports: [SqsModule.register({ consumers })], providers: [Orders] })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: false });
  await begun.passed;
  // The handler works on until close() has resolved, and at the most for five seconds.
  const timer = setTimeout(work.open, 5000);
  await app.close();
  seen.push("close() resolves");
  clearTimeout(timer);
  work.open();
  await deleted.passed;
  console.log(seen.join(", "));
  const hooks = ["onModuleDestroy", "beforeApplicationShutdown", "onApplicationShutdown"];
  const expected = ["handler begins", ...hooks, "close() resolves", "handler ends", "DeleteMessage"];
  process.exit(seen.join() === expected.join() ? 0 : 1);
}
main();
JS
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
node run.cjs 2>log || { tail -5 log >&2; exit 1; }
