// Writes share_groups.json: the records of share groups as Kafka's own classes write them, and what its assignor deals.
// java -cp <the jars of kafka-group-coordinator and its dependencies> tests/golden/ShareGroups.java 8 > tests/golden/share_groups.json
// The argument is how many groups chance makes; each is dealt three times, with members that come and go.
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.*;
import org.apache.kafka.coordinator.group.modern.share.ShareGroup.InitMapValue;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupMember;

public class ShareGroups {
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    static final Random RANDOM = new Random(932);

    public static void main(String[] arguments) {
        Uuid orders = new Uuid(0x1122334455667788L, 0x99aabbccddeeff00L), bills = new Uuid(1, 2);
        ShareGroupMember member = new ShareGroupMember.Builder("m-1").setMemberEpoch(5).setPreviousMemberEpoch(4)
            .setRackId("r").setClientId("c").setClientHost("/127.0.0.1").setSubscribedTopicNames(List.of("orders", "bills"))
            .setAssignedPartitions(Map.of(orders, new TreeSet<>(List.of(0, 2)))).build();
        ShareGroupMember plain = new ShareGroupMember.Builder("m-2").build();
        Map<Uuid, InitMapValue> asked = Map.of(bills, new InitMapValue("bills", new TreeSet<>(List.of(0, 1)), 7));
        Map<Uuid, InitMapValue> begun = Map.of(orders, new InitMapValue("orders", new TreeSet<>(List.of(0, 1, 2)), 7));
        List<String> records = Stream.of(
            GroupCoordinatorRecordHelpers.newShareGroupMemberSubscriptionRecord("g", member),
            GroupCoordinatorRecordHelpers.newShareGroupMemberSubscriptionRecord("g", plain),
            GroupCoordinatorRecordHelpers.newShareGroupMemberSubscriptionTombstoneRecord("g", "m-1"),
            GroupCoordinatorRecordHelpers.newShareGroupEpochRecord("g", 6, -123456789L),
            GroupCoordinatorRecordHelpers.newShareGroupEpochTombstoneRecord("g"),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentMetadataRecord("g", 6, 1700000000000L),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentMetadataRecord("g", 7, 0L),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentMetadataTombstoneRecord("g"),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentRecord("g", "m-1", Map.of(orders, new TreeSet<>(List.of(0, 2)))),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentRecord("g", "m-2", Map.of()),
            GroupCoordinatorRecordHelpers.newShareGroupTargetAssignmentTombstoneRecord("g", "m-1"),
            GroupCoordinatorRecordHelpers.newShareGroupCurrentAssignmentRecord("g", member),
            GroupCoordinatorRecordHelpers.newShareGroupCurrentAssignmentTombstoneRecord("g", "m-1"),
            GroupCoordinatorRecordHelpers.newShareGroupStatePartitionMetadataRecord("g", asked, begun, Map.of(new Uuid(3, 4), "old")),
            GroupCoordinatorRecordHelpers.newShareGroupStatePartitionMetadataTombstoneRecord("g")
        ).map(ShareGroups::record).collect(Collectors.toList());
        List<String> dealt = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[0]); number++) play(dealt);
        System.out.println("{\"records\": [\n" + String.join(",\n", records) + "\n], \"dealt\": [\n" + String.join(",\n", dealt) + "\n]}");
    }

    static String record(CoordinatorRecord record) {
        byte[] value = SERDE.serializeValue(record);
        return "[" + hex(SERDE.serializeKey(record)) + ", " + (value == null ? "null" : hex(value)) + "]";
    }

    static String hex(byte[] data) {
        return "\"" + HexFormat.of().formatHex(data) + "\"";
    }

    static void play(List<String> dealt) {
        int topics = 1 + RANDOM.nextInt(3);
        Map<Uuid, Integer> counts = new LinkedHashMap<>();
        for (int topic = 1; topic <= topics; topic++) counts.put(new Uuid(0, topic), 1 + RANDOM.nextInt(6));
        boolean alike = RANDOM.nextBoolean();
        Map<String, Set<Uuid>> wanted = new LinkedHashMap<>();
        Map<String, Map<Uuid, Set<Integer>>> had = new LinkedHashMap<>();
        for (int member = 1 + RANDOM.nextInt(7); member > 0; member--) join(wanted, counts.keySet(), alike);
        Map<Uuid, Set<Integer>> all = new LinkedHashMap<>();
        for (int round = 0; round < 3; round++) {
            Map<Uuid, Set<Integer>> begun = new LinkedHashMap<>();
            for (Uuid topic : counts.keySet())
                for (int one = 0; one < counts.get(topic); one++)
                    if (one == 0 || RANDOM.nextInt(5) > 0) all.computeIfAbsent(topic, any -> new TreeSet<>()).add(one);
            for (Uuid topic : counts.keySet())
                if (wanted.values().stream().anyMatch(one -> one.contains(topic))) begun.put(topic, new TreeSet<>(all.get(topic)));
            Map<String, Map<Uuid, Set<Integer>>> now = deal(wanted, had, counts, begun);
            dealt.add("{\"wanted\": " + text(wanted.entrySet(), ShareGroups::numbers) + ", \"had\": " + text(had.entrySet(), ShareGroups::assignment)
                + ", \"begun\": " + assignment(begun) + ", \"dealt\": " + text(now.entrySet(), ShareGroups::assignment) + "}");
            had = now;
            if (RANDOM.nextBoolean()) join(wanted, counts.keySet(), alike);
            if (wanted.size() > 1 && RANDOM.nextBoolean()) {
                String gone = wanted.keySet().iterator().next();
                wanted.remove(gone);
                had.remove(gone);
            }
        }
    }

    static void join(Map<String, Set<Uuid>> wanted, Set<Uuid> topics, boolean alike) {
        Set<Uuid> chosen = new LinkedHashSet<>();
        for (Uuid topic : topics) if (alike || chosen.isEmpty() || RANDOM.nextBoolean()) chosen.add(topic);
        wanted.put("m-" + RANDOM.nextInt(100000), chosen);
    }

    static Map<String, Map<Uuid, Set<Integer>>> deal(Map<String, Set<Uuid>> wanted, Map<String, Map<Uuid, Set<Integer>>> had,
            Map<Uuid, Integer> counts, Map<Uuid, Set<Integer>> begun) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        wanted.forEach((name, topics) -> members.put(name, new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), Optional.empty(), topics, new Assignment(had.getOrDefault(name, Map.of())))));
        boolean alike = wanted.values().stream().distinct().count() == 1;
        GroupSpec spec = new GroupSpecImpl(members, alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, Map.of(), Optional.of(begun));
        Map<String, Map<Uuid, Set<Integer>>> now = new LinkedHashMap<>();
        new SimpleAssignor().assign(spec, new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) { return counts.get(topic); }
            public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
        }).members().forEach((name, one) -> now.put(name, one.partitions()));
        return now;
    }

    static String numbers(Set<Uuid> topics) {
        return topics.stream().map(one -> "" + one.getLeastSignificantBits()).collect(Collectors.joining(", ", "[", "]"));
    }

    static String assignment(Map<Uuid, Set<Integer>> all) {
        return all.entrySet().stream().filter(one -> !one.getValue().isEmpty()).map(one -> "\"" + one.getKey().getLeastSignificantBits() + "\": "
            + new TreeSet<>(one.getValue())).collect(Collectors.joining(", ", "{", "}"));
    }

    static <T> String text(Set<Map.Entry<String, T>> all, java.util.function.Function<T, String> form) {
        return all.stream().map(one -> "\"" + one.getKey() + "\": " + form.apply(one.getValue())).collect(Collectors.joining(", ", "{", "}"));
    }
}
