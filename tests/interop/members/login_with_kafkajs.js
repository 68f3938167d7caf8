// Logs in with kafkajs, writes a record and prints what it reads at its offset. What it is told: see login_clients.py.
const { readFileSync } = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const given = JSON.parse(process.argv[2]);
const fail = (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
};
const read = (path) => path && readFileSync(path, "utf8");

function sasl() {
  if (given.mechanism === "OAUTHBEARER") {
    return { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: given.token }) };
  }
  return { mechanism: given.mechanism.toLowerCase(), username: given.username, password: given.password };
}

async function main() {
  const kafka = new Kafka({
    brokers: [given.bootstrap],
    logLevel: logLevel.NOTHING,
    ssl: given.tls && { ca: read(given.ca) || undefined, cert: read(given.certificate), key: read(given.key) },
    sasl: given.mechanism ? sasl() : undefined,
    retry: { retries: 1 },
  });
  const producer = kafka.producer();
  await producer.connect();
  const [written] = await producer.send({ topic: given.topic, messages: [{ value: given.value, partition: 0 }] });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: `${given.value}-${process.pid}`, maxWaitTimeInMs: 100 });
  consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error));
  await consumer.connect();
  await consumer.subscribe({ topics: [given.topic] });
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.offset !== written.baseOffset) return;
        process.stdout.write(`${message.value}\n`);
        resolve();
      },
    });
    consumer.seek({ topic: given.topic, partition: 0, offset: written.baseOffset });
  });
  await consumer.disconnect();
}

main().catch(fail);
