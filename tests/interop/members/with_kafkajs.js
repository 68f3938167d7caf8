// A member with kafkajs. What it is told and what it says: see given.py.
const { Kafka, logLevel } = require("kafkajs");

const given = JSON.parse(process.argv[2]);
const say = (...words) => process.stdout.write(words.join(" ") + "\n");
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

async function main() {
  const kafka = new Kafka({ brokers: [given.bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer({
    transactionalId: given.transactional_id,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  const consumer = kafka.consumer({
    groupId: given.group,
    sessionTimeout: given.session_ms,
    heartbeatInterval: given.heartbeat_ms,
    maxWaitTimeInMs: 100,
    readUncommitted: false,
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    say("assigned", ...(payload.memberAssignment[given.source] || []).sort())
  );
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) throw payload.error;
  });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [given.source], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += 10) {
        const records = batch.messages.slice(at, at + 10);
        const last = records[records.length - 1].offset;
        const transaction = await producer.transaction();
        try {
          await transaction.send({
            topic: given.target,
            messages: records.map(({ value }) => ({ value, partition: batch.partition })),
          });
          const offset = (BigInt(last) + 1n).toString();
          const topics = [{ topic: given.source, partitions: [{ partition: batch.partition, offset }] }];
          await transaction.sendOffsets({ consumerGroupId: given.group, topics });
          say("open", records.length);
          await sleep(given.pause_s);
          await transaction.commit();
        } catch (error) {
          await transaction.abort();
          say("aborted", error.message);
          throw error;
        }
        say("committed", records.length);
        resolveOffset(last);
        await heartbeat();
      }
    },
  });
  process.on("SIGTERM", async () => {
    await consumer.disconnect();
    await producer.disconnect();
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
