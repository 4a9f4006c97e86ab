'use strict';

// The official Node.js client as a test driver; README.md of the directory above describes the commands.

const readline = require('node:readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require(
  'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const REQUEST_TIMEOUT_MS = 10_000;
const WAIT_S = 20;

const clients = new Map();
const received = new Map(); // ref -> message
let refs = 0;

function show(row) {
  process.stdout.write(`${JSON.stringify(row)}\n`);
}

function outgoing({ topic, body, tag, keys, properties, group, deliver_at_ms: deliverAtMs }) {
  return {
    topic,
    body: Buffer.from(body, 'base64'),
    tag,
    keys,
    properties: properties && new Map(Object.entries(properties)),
    messageGroup: group,
    deliveryTimestamp: deliverAtMs && new Date(deliverAtMs),
  };
}

function incoming(message) {
  return {
    topic: message.topic,
    body: message.body.toString('base64'),
    tag: message.tag || null,
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup || null,
    deliver_at_ms: message.deliveryTimestamp?.getTime() ?? null,
    id: message.messageId,
    attempt: message.deliveryAttempt,
  };
}

function checker(name, decisions) {
  return {
    async check(message) {
      const decision = decisions[message.body.toString()] ?? 'UNKNOWN';
      show({ event: 'checked', name, message: incoming(message), decision });
      return TransactionResolution[decision] ?? TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
    },
  };
}

function listener(name, failures) {
  return {
    consume(message) {
      const body = message.body.toString();
      const left = failures[body] ?? 0;
      failures[body] = left - 1;
      const result = left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      show({ event: 'delivered', name, message: incoming(message), result: result.name });
      return result;
    },
  };
}

function filters(subscriptions) {
  return new Map(Object.entries(subscriptions).map(
    ([ topic, { type, expression }]) => [ topic, new FilterExpression(expression, FilterType[type]) ]));
}

async function start(name, client) {
  await client.startup();
  clients.set(name, client);
}

function common({ endpoints, tls = false }) {
  return { endpoints, namespace: '', sslEnabled: tls, requestTimeout: REQUEST_TIMEOUT_MS };
}

const commands = {
  async start_producer({ name, topics = [], decisions = {}, ...rest }) {
    await start(name, new Producer({ ...common(rest), topics, checker: checker(name, decisions) }));
  },

  async start_simple_consumer({ name, group, subscriptions, wait_s: waitS = WAIT_S, ...rest }) {
    await start(name, new SimpleConsumer({
      ...common(rest),
      consumerGroup: group,
      subscriptions: filters(subscriptions),
      awaitDuration: waitS * 1000,
    }));
  },

  async start_push_consumer({ name, group, subscriptions, failures = {}, ...rest }) {
    await start(name, new PushConsumer({
      ...common(rest),
      consumerGroup: group,
      subscriptions: filters(subscriptions),
      messageListener: listener(name, failures),
    }));
  },

  async send({ name, message }) {
    const receipt = await clients.get(name).send(outgoing(message));
    return { id: receipt.messageId, recall_handle: receipt.recallHandle || null };
  },

  async send_in_transaction({ name, message, then }) {
    const producer = clients.get(name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(outgoing(message), transaction);
    if (then) {
      await transaction[then]();
    }
    return { id: receipt.messageId };
  },

  async recall({ name, topic, recall_handle: handle }) {
    const receipt = await clients.get(name).recallMessage(topic, handle);
    return { id: receipt.messageId };
  },

  async receive({ name, most, invisible_s: invisibleS }) {
    const messages = await clients.get(name).receive(most, invisibleS * 1000);
    return messages.map(message => {
      const ref = refs++;
      received.set(ref, message);
      return { ...incoming(message), ref };
    });
  },

  async ack({ name, ref }) {
    await clients.get(name).ack(received.get(ref));
  },

  async change_invisible_duration({ name, ref, invisible_s: invisibleS }) {
    await clients.get(name).changeInvisibleDuration(received.get(ref), invisibleS * 1000);
  },

  async stop({ name }) {
    const client = clients.get(name);
    clients.delete(name);
    await client.shutdown();
  },
};

async function obey({ id, do: command, ...fields }) {
  try {
    show({ id, result: await commands[command](fields) ?? null });
  } catch (error) {
    // Some errors have their code in the text alone.
    const code = error.code ?? error.message.match(/\(code: (\d+)\)/)?.[1];
    show({ id, error: { kind: error.name, code: Number(code) || null, message: error.message } });
  }
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => obey(JSON.parse(line)));
lines.on('close', () => process.exit(0));
