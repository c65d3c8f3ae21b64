// The Node client ali-ons on a command line: a verb, then options; prints one JSON event per line.
'use strict';

const { parseArgs } = require('util');
const { Consumer, Message, Producer } = require('ali-ons');

// A send that is tried again on a busy machine would be stored twice.
const SEND_TIMEOUT_MS = 20_000;

// Everything goes to standard error; standard output is for events.
const logger = { info() {}, debug() {}, warn: console.error, error: console.error };
// Asked for the name servers only when none is given.
const httpclient = { request: () => Promise.reject(new Error('no name server by HTTP here')) };

function emit(event) {
  process.stdout.write(JSON.stringify(event) + '\n');
}

async function send({ namesrv, topic, group, count, tag, prefix }) {
  const producer = new Producer({
    nameSrv: namesrv,
    producerGroup: group,
    sendMsgTimeout: SEND_TIMEOUT_MS,
    httpclient,
    logger,
  });
  await producer.ready();
  for (let i = 0; i < Number(count); i++) {
    const body = prefix + i;
    const message = new Message(topic, tag, body);
    message.keys = [ `key-${i}` ];
    const result = await producer.send(message);
    emit({
      event: 'sent',
      body,
      status: result.sendStatus,
      messageId: result.msgId,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: Number(result.queueOffset),
    });
  }
  await producer.close();
}

async function consume({ namesrv, topic, group, count, tag, timeout }) {
  const consumer = new Consumer({
    nameSrv: namesrv,
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    httpclient,
    logger,
  });
  let missing = Number(count);
  const all = new Promise((resolve, reject) => {
    const giveUp = () => reject(new Error(`${missing} of ${count} messages missing`));
    setTimeout(giveUp, Number(timeout) * 1000);
    // It tells of every group without an offset yet as of an error, and goes on from where it is to.
    consumer.on('error', console.error);
    consumer.subscribe(topic, tag, async message => {
      emit({
        event: 'received',
        body: message.body.toString(),
        messageId: message.msgId,
        queueId: message.queueId,
        queueOffset: Number(message.queueOffset),
        tags: message.tags,
        keys: message.keys,
      });
      missing -= 1;
      if (missing === 0) resolve();
    });
  });
  await consumer.ready();
  await all;
  await consumer.close();
}

async function main() {
  const [ verb, ...rest ] = process.argv.slice(2);
  const names = [ 'namesrv', 'topic', 'group', 'count', 'tag', 'prefix', 'timeout' ];
  const options = Object.fromEntries(names.map(name => [ name, { type: 'string' } ]));
  const { values } = parseArgs({ args: rest, options });
  const verbs = { send, consume };
  if (!verbs[verb]) throw new Error(`no such verb: ${verb}`);
  await verbs[verb](values);
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
