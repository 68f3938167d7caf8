// Writes kafka_assignments.ndjson: what Kafka's own assignors deal to random groups.
// java -cp kafka-clients.jar:slf4j-api.jar tests/golden/Assignors.java > tests/golden/kafka_assignments.ndjson
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

public class Assignors {
    public static void main(String[] arguments) {
        Random random = new Random(848);
        for (int number = 0; number < 60; number++) {
            Map<String, Integer> counts = new TreeMap<>();
            for (String topic : List.of("orders", "bills", "ü", "Zeta"))
                if (counts.isEmpty() || random.nextBoolean()) counts.put(topic, 1 + random.nextInt(7));
            boolean alike = random.nextBoolean();
            List<String> topics = new ArrayList<>(counts.keySet());
            topics.add("missing");
            List<String> common = some(topics, random);
            Map<String, List<String>> wanted = new TreeMap<>();
            Map<String, String> instances = new TreeMap<>();
            int members = 1 + random.nextInt(6);
            for (int member = 0; member < members; member++) {
                String id = "consumer-" + random.nextInt(1000);
                wanted.put(id, alike ? common : some(topics, random));
                if (random.nextInt(3) == 0) instances.put(id, "i" + (9 - member));
            }
            for (AbstractPartitionAssignor assignor : List.of(
                    new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor()))
                play(assignor, counts, wanted, instances, random);
        }
    }

    static void play(AbstractPartitionAssignor assignor, Map<String, Integer> counts, Map<String, List<String>> wanted,
            Map<String, String> instances, Random random) {
        Map<String, List<TopicPartition>> first = assignor.assign(known(counts, wanted), subscriptions(assignor, wanted, instances, Map.of()));
        print(assignor.name(), counts, wanted, instances, Map.of(), first);
        if (assignor.name().contains("sticky") && wanted.size() > 1) {
            Map<String, List<String>> left = new TreeMap<>(wanted);
            left.remove(left.keySet().iterator().next());
            left.put("newcomer", wanted.values().iterator().next());
            Map<String, List<TopicPartition>> had = new TreeMap<>(first);
            had.keySet().retainAll(left.keySet());
            print(assignor.name(), counts, left, instances, had, assignor.assign(known(counts, left), subscriptions(assignor, left, instances, had)));
        }
    }

    static Map<String, Integer> known(Map<String, Integer> counts, Map<String, List<String>> wanted) {
        Map<String, Integer> subscribed = new TreeMap<>(counts);  // the caller's duty in Kafka
        subscribed.keySet().retainAll(wanted.values().stream().flatMap(List::stream).collect(Collectors.toSet()));
        return subscribed;
    }

    static Map<String, Subscription> subscriptions(AbstractPartitionAssignor assignor, Map<String, List<String>> wanted,
            Map<String, String> instances, Map<String, List<TopicPartition>> had) {
        Map<String, Subscription> all = new HashMap<>();
        for (String id : wanted.keySet()) {
            List<TopicPartition> owned = had.getOrDefault(id, List.of());
            ByteBuffer data = null;
            if (assignor instanceof StickyAssignor && !owned.isEmpty()) {
                StickyAssignor mine = new StickyAssignor();
                mine.onAssignment(new ConsumerPartitionAssignor.Assignment(owned), new ConsumerGroupMetadata("g", 1, id, Optional.empty()));
                data = mine.subscriptionUserData(Set.of());
            }
            Subscription one = new Subscription(wanted.get(id), data, assignor instanceof StickyAssignor ? List.of() : owned, 1, Optional.empty());
            if (instances.containsKey(id)) one.setGroupInstanceId(Optional.of(instances.get(id)));
            all.put(id, one);
        }
        return all;
    }

    static List<String> some(List<String> topics, Random random) {
        List<String> chosen = topics.stream().filter(topic -> random.nextBoolean()).collect(Collectors.toList());
        return chosen.isEmpty() ? List.of(topics.get(0)) : chosen;
    }

    static void print(String name, Map<String, Integer> counts, Map<String, List<String>> wanted, Map<String, String> instances,
            Map<String, List<TopicPartition>> had, Map<String, List<TopicPartition>> dealt) {
        System.out.println("{\"assignor\": \"" + name + "\", \"counts\": {" + counts.entrySet().stream()
            .map(one -> quoted(one.getKey()) + ": " + one.getValue()).collect(Collectors.joining(", ")) + "}, \"wanted\": {"
            + wanted.entrySet().stream().map(one -> quoted(one.getKey()) + ": [" + one.getValue().stream()
                .map(Assignors::quoted).collect(Collectors.joining(", ")) + "]").collect(Collectors.joining(", "))
            + "}, \"instances\": {" + instances.entrySet().stream().filter(one -> wanted.containsKey(one.getKey()))
                .map(one -> quoted(one.getKey()) + ": " + quoted(one.getValue())).collect(Collectors.joining(", "))
            + "}, \"had\": " + partitions(had) + ", \"dealt\": " + partitions(dealt) + "}");
    }

    static String partitions(Map<String, List<TopicPartition>> all) {
        return new TreeMap<>(all).entrySet().stream().map(one -> quoted(one.getKey()) + ": [" + one.getValue().stream()
            .map(partition -> "[" + quoted(partition.topic()) + ", " + partition.partition() + "]")
            .collect(Collectors.joining(", ")) + "]").collect(Collectors.joining(", ", "{", "}"));
    }

    static String quoted(String text) {
        return "\"" + text + "\"";
    }
}
