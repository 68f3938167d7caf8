package kafka.server.share;

import java.io.*;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.ShareFetchResponseData.AcquiredRecords;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.server.share.PartitionMetadataProvider;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.dlq.*;
import org.apache.kafka.server.share.fetch.*;
import org.apache.kafka.server.share.metrics.SharePartitionMetrics;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.server.util.timer.*;

/** Answers, line by line, what Kafka's own SharePartition decides; in its package to reach what is not public. */
public class SharePartitions {
    static final PrintStream ANSWERS = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);
    static { System.setOut(System.err); } // where Kafka's log goes
    static final TopicIdPartition PLACE = new TopicIdPartition(new Uuid(1, 1), 0, "t");
    static final SharePartitionMetrics METRICS = new SharePartitionMetrics("g", "t", 0);

    record Stored(long first, long last, int state, int count) { }
    record Dead(ShareGroupDLQRecordParameter what, CompletableFuture<Void> done) { }
    record Written(CompletableFuture<WriteShareGroupStateResult> done) { }

    long now = 0;
    int limit, lockMs, most;
    boolean renew, deadLetters;
    long first;
    SharePartition partition;
    PartitionAllData begin;
    final PriorityQueue<TimerTaskEntry> timers = new PriorityQueue<>(Comparator.comparingLong(e -> e.expirationMs));
    final List<List<Written>> pending = new ArrayList<>();
    final List<List<Dead>> toDead = new ArrayList<>();
    List<Written> writing = new ArrayList<>();
    List<Stored> written = new ArrayList<>();
    List<Dead> dying = new ArrayList<>();
    String writtenWith = "";

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = ANSWERS;
        SharePartitions one = null;
        boolean failed = false;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("play")) {
                one = new SharePartitions();
                failed = false;
                out.println();
            } else if (failed) {
                out.println("-");
            } else {
                try {
                    out.println(one.act(words) + one.effects() + one.view());
                } catch (Exception e) { // Kafka's own fault: what comes after it is not compared
                    failed = true;
                    out.println("! " + e);
                }
            }
        }
        out.flush();
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    <T> T fake(Class<T> kind, java.util.function.Function<Object[], Object> answer, String... names) {
        return (T) Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (self, method, given) ->
            List.of(names).contains(method.getName()) ? answer.apply(given) : null);
    }

    Persister persister() {
        return (Persister) Proxy.newProxyInstance(Persister.class.getClassLoader(), new Class<?>[] {Persister.class},
            (self, method, given) -> switch (method.getName()) {
                case "readState" -> CompletableFuture.completedFuture(new ReadShareGroupStateResult.Builder()
                    .setTopicsData(List.of(new TopicData<>(PLACE.topicId(), List.of(begin)))).build());
                case "writeState" -> write((WriteShareGroupStateParameters) given[0]);
                default -> null;
            });
    }

    CompletableFuture<WriteShareGroupStateResult> write(WriteShareGroupStateParameters parameters) {
        PartitionStateBatchData data =
            parameters.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
        writtenWith = data.startOffset() + "," + data.deliveryCompleteCount();
        for (PersisterStateBatch batch : data.stateBatches())
            written.add(new Stored(batch.firstOffset(), batch.lastOffset(), batch.deliveryState(), batch.deliveryCount()));
        Written one = new Written(new CompletableFuture<>());
        writing.add(one);
        return one.done;
    }

    String act(String[] words) throws Exception {
        switch (words[0]) {
            case "restore": return restore(words);
            case "settings": return settings(words);
            case "acquire": return acquire(words);
            case "ack": return done(partition.acknowledge(words[1], acknowledged(words[2])));
            case "release": return done(partition.releaseAcquiredRecords(words[1]));
            case "start":
                partition.updateCacheAndOffsets(Long.parseLong(words[1]));
                return "";
            case "pass":
                now += Long.parseLong(words[1]);
                while (!timers.isEmpty() && timers.peek().expirationMs <= now) {
                    TimerTaskEntry entry = timers.poll();
                    if (!entry.cancelled()) entry.timerTask.run();
                }
                return "";
            case "settle":
                checkNotStuck();
                for (Written one : pending.remove(Integer.parseInt(words[1]))) one.done.complete(result(words[2].equals("1")));
                return "";
            case "dead":
                for (Dead one : toDead.remove(Integer.parseInt(words[1]))) one.done.complete(null);
                return "";
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    /** SharePartition.canMoveStartOffset fails where the start lies behind the end of a batch of single offsets. */
    void checkNotStuck() {
        Map.Entry<Long, InFlightBatch> floor = partition.cachedState().floorEntry(partition.startOffset());
        if (floor != null && floor.getValue().offsetState() != null && floor.getValue().lastOffset() < partition.startOffset())
            throw new NullPointerException("the start offset is in no batch");
    }

    static WriteShareGroupStateResult result(boolean stored) {
        Errors error = stored ? Errors.NONE : Errors.COORDINATOR_NOT_AVAILABLE;
        return new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(PLACE.topicId(),
            List.of(PartitionFactory.newPartitionErrorData(0, error.code(), error.message()))))).build();
    }

    static String done(CompletableFuture<Void> future) {
        if (!future.isCompletedExceptionally()) return "";
        try {
            future.join();
            return "";
        } catch (Exception e) {
            return "refused " + Errors.forException(e.getCause()).code();
        }
    }

    /** settings most limit lockMs renew deadLetters */
    String settings(String[] words) {
        most = Integer.parseInt(words[1]);
        limit = Integer.parseInt(words[2]);
        lockMs = Integer.parseInt(words[3]);
        renew = words[4].equals("1");
        deadLetters = words[5].equals("1");
        return "";
    }

    /** restore most limit lockMs renew deadLetters epoch start first batches */
    String restore(String[] words) throws Exception {
        settings(words);
        first = Long.parseLong(words[8]);
        List<PersisterStateBatch> batches = ranges(words[9]).map(one ->
            new PersisterStateBatch(one[0], one[1], (byte) one[2], (short) one[3])).toList();
        begin = PartitionFactory.newPartitionAllData(
            0, Integer.parseInt(words[6]), Long.parseLong(words[7]), (short) 0, "", batches);
        timers.clear();
        pending.clear();
        toDead.clear();
        Time time = fake(Time.class, given -> now, "milliseconds", "hiResClockMs");
        org.apache.kafka.server.util.timer.Timer timer = fake(org.apache.kafka.server.util.timer.Timer.class, given -> {
            var task = (org.apache.kafka.server.util.timer.TimerTask) given[0];
            timers.add(new TimerTaskEntry(task, task.delayMs + now));
            return null;
        }, "add");
        ShareGroupConfigProvider settings = new ShareGroupConfigProvider(null) {
            @Override public int recordLockDurationMsOrDefault(String group, int otherwise) { return lockMs; }
            @Override public int deliveryCountLimitOrDefault(String group, int otherwise) { return limit; }
            @Override public int partitionMaxRecordLocksOrDefault(String group, int otherwise) { return most; }
            @Override public boolean isRenewAcknowledgeEnabled(String group) { return renew; }
            @Override public Optional<String> errorsDLQTopicName(String group) { return deadLetters ? Optional.of("d") : Optional.empty(); }
            @Override public org.apache.kafka.coordinator.group.ShareGroupAutoOffsetResetStrategy autoOffsetReset(String group) {
                return org.apache.kafka.coordinator.group.ShareGroupAutoOffsetResetStrategy.LATEST;
            }
        };
        PartitionMetadataProvider log = fake(PartitionMetadataProvider.class, given -> first, "offsetForLatestTimestamp");
        ShareGroupDLQManager dead = fake(ShareGroupDLQManager.class, given -> {
            Dead one = new Dead((ShareGroupDLQRecordParameter) given[0], new CompletableFuture<>());
            dying.add(one);
            return one.done;
        }, "enqueue");
        partition = new SharePartition("g", PLACE, 0, most, limit, lockMs, timer, time, persister(), log, key -> { }, settings,
            SharePartition.SharePartitionState.EMPTY, null, METRICS, () -> deadLetters, dead);
        return partition.maybeInitialize().isCompletedExceptionally() ? "failed" : "";
    }

    /** acquire member mode batchSize maxRecords fetchOffset batches aborted */
    String acquire(String[] words) {
        Set<Long> aborted = ranges(words[7]).map(one -> one[0]).collect(Collectors.toSet());
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        List<FetchResponseData.AbortedTransaction> transactions = new ArrayList<>();
        ranges(words[6]).forEach(one -> {
            boolean dropped = aborted.contains(one[0]);
            MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
                TimestampType.CREATE_TIME, one[0], 0L, dropped ? one[0] + 1 : RecordBatch.NO_PRODUCER_ID, (short) 0,
                dropped ? 0 : RecordBatch.NO_SEQUENCE, dropped, false, 0);
            builder.appendWithOffset(one[0], 0L, null, new byte[1]);
            if (one[1] > one[0]) builder.appendWithOffset(one[1], 0L, null, new byte[1]);
            builder.close();
            if (dropped) transactions.add(
                new FetchResponseData.AbortedTransaction().setProducerId(one[0] + 1).setFirstOffset(one[0]));
        });
        buffer.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 1L << 40, 0, MemoryRecords.readableRecords(buffer),
            Optional.empty(), OptionalLong.empty(), Optional.of(transactions), OptionalInt.empty(), false);
        ShareAcquiredRecords acquired = partition.acquire(words[1], words[2].equals("1") ? ShareAcquireMode.RECORD_LIMIT
            : ShareAcquireMode.BATCH_OPTIMIZED, Integer.parseInt(words[3]), Integer.parseInt(words[4]),
            Long.parseLong(words[5]), data, FetchIsolation.TXN_COMMITTED);
        return acquired.acquiredRecords().stream().map(one ->
            one.firstOffset() + "-" + one.lastOffset() + "x" + one.deliveryCount()).collect(Collectors.joining(","));
    }

    static List<ShareAcknowledgementBatch> acknowledged(String text) {
        List<ShareAcknowledgementBatch> all = new ArrayList<>();
        for (String one : text.split(",")) {
            String[] parts = one.split(":");
            all.add(new ShareAcknowledgementBatch(Long.parseLong(parts[0]), Long.parseLong(parts[1]),
                parts[2].chars().mapToObj(c -> (byte) (c - '0')).toList()));
        }
        return all;
    }

    static Stream<long[]> ranges(String text) {
        return Stream.of(text.split(",")).filter(one -> !one.isEmpty())
            .map(one -> Stream.of(one.split(":")).mapToLong(Long::parseLong).toArray());
    }

    /** What was written, and what goes to the dead-letter topic: in offset order, neighbours alike as one. */
    String effects() {
        StringBuilder text = new StringBuilder();
        if (!writing.isEmpty()) {
            written.sort(Comparator.comparingLong(Stored::first));
            List<Stored> joined = new ArrayList<>();
            for (Stored one : written) {
                Stored before = joined.isEmpty() ? null : joined.get(joined.size() - 1);
                if (before != null && before.last + 1 == one.first && before.state == one.state && before.count == one.count)
                    joined.set(joined.size() - 1, new Stored(before.first, one.last, one.state, one.count));
                else joined.add(one);
            }
            text.append(" wrote ").append(writtenWith);
            joined.forEach(one -> text.append(',').append(one.first).append('-').append(one.last).append('/')
                .append(one.state).append('x').append(one.count));
            pending.add(writing);
            writing = new ArrayList<>();
            written = new ArrayList<>();
        }
        dying.sort(Comparator.comparingLong(one -> one.what.firstOffset()));
        String alike = null;
        long next = -1;
        for (Dead one : dying) {
            String kind = "x" + one.what.deliveryCount().get() + (one.what.cause().get().getMessage().contains("limit")
                || one.what.cause().get() == ShareGroupDLQManager.DELIVERY_COUNT_EXCEEDED ? "l" : "r");
            if (!kind.equals(alike) || next != one.what.firstOffset()) {
                text.append(" dead ").append(one.what.firstOffset()).append(kind);
                toDead.add(new ArrayList<>());
            }
            toDead.get(toDead.size() - 1).add(one);
            alike = kind;
            next = one.what.lastOffset() + 1;
        }
        dying = new ArrayList<>();
        return text.toString();
    }

    String view() {
        StringBuilder text = new StringBuilder(" | " + partition.startOffset() + " " + partition.endOffset() + " "
            + partition.deliveryCompleteCount() + " " + partition.nextFetchOffset() + " " + (partition.canAcquireRecords() ? 1 : 0));
        for (InFlightBatch batch : partition.cachedState().values()) {
            text.append(' ').append(batch.firstOffset()).append('-').append(batch.lastOffset());
            if (batch.offsetState() == null) {
                text.append(':').append(batch.batchState().id).append(batch.batchMemberId()).append('x')
                    .append(batch.batchDeliveryCount()).append(batch.batchHasOngoingStateTransition() ? "~" : "")
                    .append(lock(batch.batchAcquisitionLockTimeoutTask(), batch.batchState(), batch.batchHasOngoingStateTransition()));
                continue;
            }
            String before = null;
            for (InFlightState state : batch.offsetState().values()) {
                String one = state.state().id + state.memberId() + "x" + state.deliveryCount()
                    + (state.hasOngoingStateTransition() ? "~" : "")
                    + lock(state.acquisitionLockTimeoutTask(), state.state(), state.hasOngoingStateTransition());
                text.append(one.equals(before) ? "+" : ";" + one);
                before = one;
            }
        }
        return text.toString();
    }

    static String lock(AcquisitionLockTimerTask task, RecordState state, boolean ongoing) {
        return task == null || state != RecordState.ACQUIRED && !ongoing ? "" : task.hasExpired() ? "@x" : "@" + task.expirationMs();
    }
}
