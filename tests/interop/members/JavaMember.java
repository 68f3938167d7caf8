// A member with Kafka's own client; the variant is an assignor's class (or several, with commas), or `consumer`.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class JavaMember {
    static volatile boolean askedToStop = false;
    static final CountDownLatch gone = new CountDownLatch(1);
    static List<Integer> held = null;

    public static void main(String[] arguments) throws Exception {
        JsonNode given = new ObjectMapper().readTree(arguments[0]);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            askedToStop = true;
            try { gone.await(); } catch (InterruptedException ignored) { Runtime.getRuntime().halt(1); }
            Runtime.getRuntime().halt(0);  // a JVM that is asked to end says 143, however well it ended
        }));
        try (KafkaProducer<byte[], byte[]> producer = producer(given); KafkaConsumer<byte[], byte[]> consumer = consumer(given)) {
            producer.initTransactions();
            consumer.subscribe(List.of(given.get("source").asText()));
            while (!askedToStop) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                holds(consumer.assignment());
                if (!records.isEmpty()) transform(given, consumer, producer, records);
            }
        } catch (Throwable wrong) {
            wrong.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        gone.countDown();
    }

    static void transform(JsonNode given, KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records) throws Exception {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(given.get("target").asText(), record.partition(), null, record.value()));
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            producer.flush();
            say("open " + records.count());
            Thread.sleep((long) (given.get("pause_s").asDouble() * 1000));
            producer.commitTransaction();
            say("committed " + records.count());
        } catch (KafkaException refused) {
            producer.abortTransaction();
            say("aborted " + refused);
            for (TopicPartition place : records.partitions())
                if (consumer.assignment().contains(place)) consumer.seek(place, records.records(place).get(0).offset());
        }
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap").asText());
        settings.put("transactional.id", given.get("transactional_id").asText());
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap").asText());
        settings.put("group.id", given.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "10");
        String variant = given.get("variant").asText();
        if (variant.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("session.timeout.ms", given.get("session_ms").asText());
            settings.put("heartbeat.interval.ms", given.get("heartbeat_ms").asText());
            settings.put("partition.assignment.strategy", Stream.of(variant.split(","))
                .map(name -> "org.apache.kafka.clients.consumer." + name).collect(Collectors.toList()));
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void holds(Set<TopicPartition> partitions) {
        List<Integer> now = partitions.stream().map(TopicPartition::partition).sorted().collect(Collectors.toList());
        if (!now.equals(held)) {
            held = now;
            say("assigned " + now.stream().map(String::valueOf).collect(Collectors.joining(" ")));
        }
    }

    static void say(String words) {
        System.out.println(words);
        System.out.flush();
    }
}
