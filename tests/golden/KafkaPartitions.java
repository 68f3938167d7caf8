package org.apache.kafka.clients.producer.internals;

import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Utils;

/** Prints what Kafka's own producer decides about partitions, as JSON; in its package to reach what is not public. */
public class KafkaPartitions {
    static final Random CHANCE = new Random(794);
    static final int[] COUNTS = {1, 3, 7, 1000};

    /** The partitioner with known random numbers. */
    static class Known extends BuiltInPartitioner {
        final List<Integer> drawn = new ArrayList<>();

        Known(int stickyBytes) {
            super(new LogContext(), "t", stickyBytes);
        }

        @Override
        int randomPartition() {
            int next = Utils.toPositive(CHANCE.nextInt());
            drawn.add(next);
            return next;
        }
    }

    public static void main(String[] args) {
        System.out.println("{\"keys\": [");
        List<byte[]> keys = keys();
        for (int i = 0; i < keys.size(); i++) {
            List<Integer> partitions = new ArrayList<>();
            for (int count : COUNTS) partitions.add(BuiltInPartitioner.partitionForKey(keys.get(i), count));
            System.out.printf("[\"%s\", %d, %s]%s%n", hex(keys.get(i)), Utils.murmur2(keys.get(i)), partitions,
                i + 1 < keys.size() ? "," : "");
        }
        System.out.println("], \"runs\": [");
        for (int i = 0; i < 24; i++) System.out.println(run(i) + (i < 23 ? "," : ""));
        System.out.println("]}");
    }

    static List<byte[]> keys() {
        List<byte[]> keys = new ArrayList<>();
        for (String text : new String[] {"", "a", "21", "foobar", "Grüße", "ключ", "鍵", "🗝", "🗝🗝🗝", "a\u0000b", "customer-42"})
            keys.add(text.getBytes(StandardCharsets.UTF_8));
        for (int length = 1; length <= 9; length++) {
            for (int fill : new int[] {0, 0x7f, 0x80, 0xff}) {
                byte[] key = new byte[length];
                Arrays.fill(key, (byte) fill);
                keys.add(key);
            }
        }
        for (int i = 0; i < 150; i++) {
            byte[] key = new byte[CHANCE.nextInt(40)];
            CHANCE.nextBytes(key);
            keys.add(key);
        }
        return keys;
    }

    /** One life of a topic's sticky partition: what went in, which random numbers were drawn, where records went. */
    static String run(int number) {
        int count = 1 + CHANCE.nextInt(6), sticky = 1 + CHANCE.nextInt(200);
        boolean adaptive = number % 2 == 0;
        Node node = new Node(0, "h", 1);
        List<PartitionInfo> infos = new ArrayList<>();
        List<Integer> available = new ArrayList<>();
        for (int p = 0; p < count; p++) {
            boolean leads = CHANCE.nextInt(4) > 0;
            if (leads) available.add(p);
            infos.add(new PartitionInfo("t", p, leads ? node : null, new Node[0], new Node[0]));
        }
        Cluster cluster = new Cluster("c", List.of(node), infos, Set.of(), Set.of());
        Known known = new Known(sticky);
        StringBuilder steps = new StringBuilder();
        for (int i = 0; i < 40; i++) {
            List<Integer> sizes = new ArrayList<>(), leftOut = new ArrayList<>();
            int[] queues = new int[available.size()], ids = new int[available.size()];
            int kept = 0;
            boolean slow = CHANCE.nextInt(3) == 0;
            for (int p : available) {
                int size = CHANCE.nextInt(4);
                sizes.add(size);
                if (slow && CHANCE.nextInt(3) == 0) leftOut.add(p);
                else { queues[kept] = size; ids[kept++] = p; }
            }
            if (adaptive) known.updatePartitionLoadStats(queues, ids, kept);
            BuiltInPartitioner.StickyPartitionInfo info = known.peekCurrentPartitionInfo(cluster);
            int bytes = CHANCE.nextInt(sticky + 1), at = info.partition();
            boolean full = CHANCE.nextBoolean();
            known.updatePartitionInfo(info, bytes, cluster, full);
            steps.append(String.format("%s[%s, %s, %d, %b, %d]", i > 0 ? ", " : "", sizes, leftOut, bytes, full, at));
        }
        return String.format("{\"partitions\": %d, \"sticky\": %d, \"adaptive\": %b, \"available\": %s, \"drawn\": %s, \"steps\": [%s]}",
            count, sticky, adaptive, available, known.drawn, steps);
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }
}
