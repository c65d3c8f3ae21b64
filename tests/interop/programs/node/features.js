// The Node client ali-ons kept running for many commands: a JSON object per line on standard input,
// events as JSON objects, one per line, on standard output. Commands run one after the other;
// consumers that were started tell what they receive at any time.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

// A send that is tried again on a busy machine would be stored twice.
const SEND_TIMEOUT_MS = 20_000;
// Longer bodies are told by their size and hash only.
const SHOWN_BODY_BYTES = 4096;
// The client is not told when a group changes: it looks by itself, every ten seconds and more.
const LOOK_AGAIN_MS = 1000;

// Everything goes to standard error; standard output is for events.
const logger = { info() {}, debug() {}, warn: console.error, error: console.error };
// Asked for the name servers only when none is given.
const httpclient = { request: () => Promise.reject(new Error('no name server by HTTP here')) };

const producers = new Map();
const consumers = new Map();

function emit(id, event) {
  process.stdout.write(JSON.stringify({ id, ...event }) + '\n');
}

function nowUs() {
  return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

function refuse(options, names) {
  for (const name of names) {
    if (options[name]) throw new Error(`the client cannot: ${name} ${options[name]}`);
  }
}

async function startedProducer(options) {
  const own = [ 'namesrv', 'group', 'compressOver', 'retries' ].map(name => options[name]);
  const name = options.producer || 'main';
  const key = JSON.stringify([ name, ...own ]);
  if (!producers.has(key)) {
    const producer = new Producer({
      nameSrv: options.namesrv,
      producerGroup: options.group || 'PG_features',
      instanceName: `producer-${process.pid}-${producers.size}`,
      sendMsgTimeout: options.timeoutMs || SEND_TIMEOUT_MS,
      retryTimesWhenSendFailed: options.retries || 0,
      ...(options.compressOver ? { compressMsgBodyOverHowmuch: options.compressOver } : {}),
      pollNameServerInteval: LOOK_AGAIN_MS,
      httpclient,
      logger,
    });
    producer.on('error', console.error);
    await producer.ready();
    producers.set(key, { name, producer });
  }
  return producers.get(key).producer;
}

function made(topic, described) {
  refuse(described, [ 'hashKey' ]);
  const body = described.bodyFile ? fs.readFileSync(described.bodyFile) : described.body;
  const message = new Message(topic, described.tags || '', body);
  if (described.keys) message.keys = described.keys.split(' ');
  Object.assign(message.properties, described.properties || {});
  if (described.delayLevel) message.delayTimeLevel = described.delayLevel;
  return message;
}

async function post(producer, message, queueId) {
  if (queueId === undefined || queueId === null) return await producer.send(message);
  const route = await producer.tryToFindTopicPublishInfo(message.topic);
  const queue = route.messageQueueList.find(candidate => candidate.queueId === queueId);
  if (!queue) throw new Error(`no such queue: ${queueId}`);
  return await producer.sendKernelImpl(message, queue);
}

async function sendOne(id, producer, topic, described, index) {
  try {
    const result = await post(producer, made(topic, described), described.queueId);
    emit(id, {
      event: 'sent',
      index,
      status: result.sendStatus,
      offsetMsgId: result.msgId,
      msgId: result.msgId,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: Number(result.queueOffset),
    });
  } catch (error) {
    emit(id, { event: 'refused', index, error: String(error), code: error.code || null });
  }
}

async function send(id, options) {
  refuse(options, [ 'vip' ]);
  const mode = options.mode || 'sync';
  if (mode !== 'sync' && mode !== 'async') throw new Error(`the client cannot: mode ${mode}`);
  const producer = await startedProducer(options);
  const sends = options.messages.map((described, index) => () =>
    sendOne(id, producer, options.topic, described, index));
  if (mode === 'async') {
    await Promise.all(sends.map(start => start()));
  } else {
    for (const start of sends) await start();
  }
}

async function consume(id, options) {
  refuse(options, [ 'vip', 'orderly' ]);
  const first = (options.from || 'first') === 'first';
  const limit = options.maxReconsumeTimes;
  const consumer = new Consumer({
    nameSrv: options.namesrv,
    consumerGroup: options.group,
    instanceName: options.name,
    isBroadcast: options.model === 'broadcasting',
    consumeFromWhere: first ? 'CONSUME_FROM_FIRST_OFFSET' : 'CONSUME_FROM_LAST_OFFSET',
    parallelConsumeLimit: options.threads || 4,
    ...(limit === undefined || limit === null ? {} : { maxReconsumeTimes: limit }),
    pollNameServerInteval: LOOK_AGAIN_MS,
    rebalanceInterval: LOOK_AGAIN_MS,
    httpclient,
    logger,
  });
  consumer.on('error', console.error);
  consumer.subscribe(options.topic, options.expression || '*', handler(id, options));
  await consumer.ready();
  consumers.set(options.name, consumer);
}

// What a consumer does with a message: tell of it, and fail as often as it was asked to.
function handler(id, options) {
  const seen = new Map();

  function isToFail(message) {
    const rule = options.fail;
    if (!rule) return false;
    const isAnyBody = rule.body === undefined || rule.body === null;
    if (!isAnyBody && rule.body !== message.body.toString()) return false;
    const name = message.originMessageId || message.msgId;
    const before = seen.get(name) || 0;
    seen.set(name, before + 1);
    return rule.times < 0 || before < rule.times;
  }

  return async message => {
    const beginUs = nowUs();
    if (options.holdMs) await new Promise(resolve => setTimeout(resolve, options.holdMs));
    const isDone = !isToFail(message);
    emitReceived(id, options.name, isDone ? 'ok' : 'later', message, beginUs);
    // What a handler returns is lost in the client when the message is one that comes again.
    if (!isDone) throw new Error('to be consumed later');
  };
}

function emitReceived(id, name, outcome, message, beginUs) {
  const body = message.body || Buffer.alloc(0);
  emit(id, {
    event: 'received',
    name,
    outcome,
    topic: message.topic,
    queueId: message.queueId,
    queueOffset: message.queueOffset,
    ...(body.length <= SHOWN_BODY_BYTES ? { body: body.toString() } : {}),
    size: body.length,
    sha256: crypto.createHash('sha256').update(body).digest('hex'),
    storeSize: message.storeSize,
    tags: message.tags,
    keys: message.keys,
    reconsumeTimes: message.reconsumeTimes,
    // The client names a message by its place in the log, which is another for every retry.
    msgId: message.originMessageId || message.msgId,
    offsetMsgId: message.msgId,
    properties: message.properties,
    bornHost: message.bornHost,
    bornMs: message.bornTimestamp,
    storeMs: message.storeTimestamp,
    beginUs,
    endUs: nowUs(),
  });
}

async function stop(id, options) {
  for (const [ key, { name, producer }] of producers) {
    if (name === options.name) {
      producers.delete(key);
      await producer.close();
    }
  }
  const consumer = consumers.get(options.name);
  if (consumer) {
    consumers.delete(options.name);
    await consumer.close();
  }
}

async function answer(command) {
  const verbs = { send, consume, stop, async exit() {} };
  try {
    if (!verbs[command.verb]) throw new Error(`the client cannot: ${command.verb}`);
    await verbs[command.verb](command.id, command.options || {});
    emit(command.id, { event: 'done' });
  } catch (error) {
    emit(command.id, { event: 'failed', error: error.stack });
  }
}

async function main() {
  emit(0, { event: 'ready' });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    await answer(command);
    if (command.verb === 'exit') break;
  }
}

process.on('unhandledRejection', console.error);
main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
