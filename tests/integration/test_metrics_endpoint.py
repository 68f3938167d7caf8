"""The Prometheus endpoint tells the truth under the names that dashboards know (ecosystem.md, section 5)."""

import json
import time
import urllib.error
import urllib.request

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.ready import ready
from tests.kit.scraping import scrape
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, Ack, ShareMember, begin_queue, topic_id_of
from tests.kit.wire import FETCH, Wire, batch_of, fetch_request

LSO_LAG = 'kafka_cluster_partition_laststableoffsetlag{partition="0",topic="t"}'
COUNTED = ("acquired", "accepted", "released", "rejected", "expired", "archived")
SHARE_REQUESTS = (
    "totalsharefetchrequests",
    "failedsharefetchrequests",
    "totalshareacknowledgementrequests",
    "failedshareacknowledgementrequests",
)
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"


@pytest.fixture
def metered(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(files=True, arguments=["--metrics", "127.0.0.1:0"])


def test_counts_follow_what_happened(metered: BrokerProcess) -> None:
    with Wire(metered.connect()) as wire:
        wire.create_topic("t", partitions=2)
        batch = batch_of(b"a", b"b", b"c")
        wire.produce("t", batch)
        wire.produce("t", batch)
        wire.fetch("t")
        wire.fetch("t", partition=5)
        samples = scrape(metered)
    topic = 'topic="t"'
    assert samples[f"kafka_server_brokertopicmetrics_messagesin_total{{{topic}}}"] == 6
    assert samples[f"kafka_server_brokertopicmetrics_bytesin_total{{{topic}}}"] == 2 * len(batch)
    assert samples[f"kafka_server_brokertopicmetrics_bytesout_total{{{topic}}}"] == 2 * len(batch)
    assert samples[f"kafka_server_brokertopicmetrics_totalproducerequests_total{{{topic}}}"] == 2
    assert samples['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 2
    assert samples['kafka_network_requestmetrics_requests_total{request="Fetch"}'] == 2
    assert samples['kafka_log_log_logendoffset{partition="0",topic="t"}'] == 6
    assert samples['kafka_topic_partition_current_offset{partition="0",topic="t"}'] == 6
    assert samples[f"kafka_topic_partitions{{{topic}}}"] == 2
    assert samples["fencepost_fsync_seconds_count"] >= 2
    assert samples["fencepost_fsync_seconds_sum"] > 0
    connections = 'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT",networkProcessor="0"}'
    assert samples[connections] == 1
    assert samples["process_resident_memory_bytes"] > 10_000_000
    assert samples["process_cpu_seconds_total"] > 0


def test_groups_show_under_kafkas_names(metered: BrokerProcess) -> None:
    """GroupMetadataManager's gauges, group-coordinator-metrics, and kafka-exporter's positions."""
    with Wire(metered.connect()) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"a", b"b", b"c"))
        for _ in range(2):
            assert wire.commit_offsets("g", "t", 1) is ErrorCode.NONE
        samples = scrape(metered)
    place = '{consumergroup="g",partition="0",topic="t"}'
    assert samples[f"kafka_consumergroup_current_offset{place}"] == 1
    assert samples[f"kafka_consumergroup_lag{place}"] == 2
    assert samples["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
    assert samples["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1
    assert samples["kafka_coordinator_group_groupmetadatamanager_numgroupsstable"] == 0
    assert samples["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1
    assert samples["kafka_server_group_coordinator_metrics_offset_commit_count"] == 2
    assert samples["kafka_server_group_coordinator_metrics_group_completed_rebalance_count"] == 0
    assert samples['kafka_server_group_coordinator_metrics_group_count{protocol="classic"}'] == 1
    assert samples['fencepost_groups{state="Empty"}'] == 1


def test_groups_of_the_consumer_protocol_show_g4(metered: BrokerProcess) -> None:
    """Kafka's consumer-group-count by state, beside group-count."""
    wants = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout_ms": 10_000}
    with Wire(metered.connect()) as wire:
        wire.call(68, 1, ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", **wants))
        samples = scrape(metered)
    counted = "kafka_server_group_coordinator_metrics_consumer_group_count"
    assert samples[f'{counted}{{state="Stable"}}'] == 1
    assert samples[f'{counted}{{state="Empty"}}'] == 0
    assert samples['kafka_server_group_coordinator_metrics_group_count{protocol="consumer"}'] == 1


def test_records_of_share_groups_show(metered: BrokerProcess) -> None:
    """ShareGroupMetrics, SharePartitionMetrics, ShareSessionCache, BrokerTopicMetrics and ShareCoordinatorMetrics."""
    with Wire(metered.connect()) as wire:
        wire.create_topic("t")
        begin_queue(wire, "g", "t")
        wire.produce("t", batch_of(*[b"%d" % number for number in range(6)]))
        member = ShareMember(wire, "g", "one", topic_id_of(wire, "t"))
        assert len(member.acquire()) == 6
        acks = (Ack(0, 0, 2, ACCEPT), Ack(0, 3, 3, REJECT), Ack(0, 4, 4, RELEASE))
        assert member.acknowledge(*acks) == [0]
        assert member.acknowledge(Ack(0, 1, 1, ACCEPT)) == [0], "below the start offset all is done"
        assert member.acknowledge(Ack(0, 4, 4, ACCEPT)) == [ErrorCode.INVALID_RECORD_STATE]
        samples = scrape(metered)
        assert member.acknowledge(final=True) == []
    counts = {name: samples[f'fencepost_share_group_{name}_records_total{{group="g"}}'] for name in COUNTED}
    assert counts == {"acquired": 6, "accepted": 4, "released": 1, "rejected": 1, "expired": 0, "archived": 1}
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert [samples[f'{acknowledged}{{ackType="{kind}"}}'] for kind in ("Accept", "Release", "Reject")] == [4, 1, 1]
    place = '{group="g",partition="0",topic="t"}'
    assert samples[f"kafka_server_sharepartitionmetrics_inflightmessagecount{place}"] == 2
    assert samples["kafka_server_sharesessioncache_sharesessionscount"] == 1
    assert samples["kafka_server_sharesessioncache_sharepartitionscount"] == 1
    assert samples["fencepost_share_partitions"] == samples["fencepost_share_states"] == 1
    written = samples["kafka_server_share_coordinator_metrics_write_total"]
    assert samples["fencepost_share_state_write_seconds_count"] == written == 3, "two acknowledgements, and the start"
    assert samples["fencepost_share_state_snapshots_total"] == 1, "it began"
    assert samples["fencepost_share_state_records"] >= written + 1
    of_topic = {name: samples[f'kafka_server_brokertopicmetrics_{name}_total{{topic="t"}}'] for name in SHARE_REQUESTS}
    assert of_topic == dict(zip(SHARE_REQUESTS, (1, 0, 3, 1), strict=True))


def test_share_groups_show_g11(metered: BrokerProcess) -> None:
    """Kafka's share-group-count by state, beside group-count (KIP-932)."""
    wants = {"member_epoch": 0, "subscribed_topic_names": ["t"]}
    with Wire(metered.connect()) as wire:
        wire.call(76, 1, ShareGroupHeartbeatRequest(group_id="g", member_id="a", **wants))
        samples = scrape(metered)
    counted = "kafka_server_group_coordinator_metrics_share_group_count"
    assert samples[f'{counted}{{state="Stable"}}'] == 1
    assert samples[f'{counted}{{state="Empty"}}'] == 0
    assert samples['kafka_server_group_coordinator_metrics_group_count{protocol="share"}'] == 1
    assert samples["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 0


def test_an_open_transaction_shows(metered: BrokerProcess) -> None:
    with Wire(metered.connect()) as wire:
        wire.create_topic("t")
        producer = wire.init_producer_id("tx")
        batch = batch_of(b"x", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
        wire.produce("t", batch, version=12, transactional_id="tx")
        samples = scrape(metered)
        assert samples['fencepost_transactions{state="Ongoing"}'] == 1
        assert samples[LSO_LAG] == 1
        assert samples["fencepost_oldest_open_transaction_seconds"] >= 0
        wire.end_txn("tx", producer, commit=False)
        samples = scrape(metered)
    assert samples['fencepost_transactions{state="Ongoing"}'] == 0
    assert samples['fencepost_transactions_ended_total{reason="client",result="abort"}'] == 1
    assert samples[LSO_LAG] == 0
    assert samples["fencepost_markers_written_total"] == 1


def test_i1_t10_a_late_transaction_is_counted_under_kafkas_name(metered: BrokerProcess) -> None:
    """Late: idle by its batches' timestamps for longer than transaction.max.timeout.ms (15 min) and 5 min more."""
    with Wire(metered.connect()) as wire:
        wire.create_topic("t")
        producers = [wire.init_producer_id("tx0"), wire.init_producer_id("tx1")]
        for number, age_minutes in enumerate((19, 21)):
            producer = producers[number]
            batch = batch_of(
                b"x",
                transactional=True,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
                timestamp_ms=int(time.time() * 1000) - age_minutes * 60_000,
            )
            assert wire.produce("t", batch, version=12, transactional_id=f"tx{number}").error_code == 0
            assert scrape(metered)[LATE] == 0, "the older one, which holds the LSO, decides"
        wire.end_txn("tx0", producers[0], commit=True)
        assert scrape(metered)[LATE] == 1


def test_a_broker_that_listens_is_ready(metered: BrokerProcess) -> None:
    assert ready(metered.facts["metrics"]) == (200, {"ready": True, "broker": 1, "role": "active", "reasons": {}})


def test_a_broker_that_works_is_healthy(metered: BrokerProcess) -> None:
    with urllib.request.urlopen(f"http://{metered.facts['metrics']}/health", timeout=100) as response:
        assert json.load(response) == {"healthy": True}


def test_other_paths_are_not_there(metered: BrokerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(f"http://{metered.facts['metrics']}/", timeout=100)
    refused.value.close()


def test_no_port_is_opened_unless_asked(broker: BrokerProcess) -> None:
    assert "metrics" not in broker.facts


def test_ends_durations_and_refusals_are_counted(metered: BrokerProcess) -> None:
    """What no broker has: reasons of ends and of fencing, and how long transactions took (ecosystem.md, section 5)."""
    with Wire(metered.connect()) as wire:
        wire.create_topic("t")
        for commit in (True, True, False):
            held = wire.init_producer_id("a")
            wire.add_partitions("a", held, "t", 0)
            assert wire.end_txn("a", held, commit=commit).error_code == ErrorCode.NONE
        held = wire.init_producer_id("a")
        wire.add_partitions("a", held, "t", 0)
        wire.init_producer_id("a")
        assert wire.end_txn("a", held, commit=True).error_code == ErrorCode.PRODUCER_FENCED
        samples = scrape(metered)
    ended = "fencepost_transactions_ended_total"
    assert samples[f'{ended}{{reason="client",result="commit"}}'] == 2
    assert samples[f'{ended}{{reason="client",result="abort"}}'] == 1
    assert samples[f'{ended}{{reason="newcomer",result="abort"}}'] == 1
    assert samples['fencepost_transaction_duration_seconds_count{result="commit"}'] == 2
    assert samples['fencepost_transaction_duration_seconds_bucket{le="+Inf",result="abort"}'] == 2
    assert samples['fencepost_transaction_duration_seconds_bucket{le="900.0",result="abort"}'] == 2
    assert samples['fencepost_producer_fenced_total{reason="newcomer"}'] == 1
    refused = 'fencepost_transaction_requests_refused_total{code="PRODUCER_FENCED",reason="newcomer"}'
    assert samples[refused] == 1
    assert samples["fencepost_transactional_ids"] == 1
    assert samples["fencepost_producer_ids"] == 1
    assert samples["fencepost_hanging_transactions"] == 0
    assert samples["fencepost_hanging_transactions_aborted_total"] == 0


def test_fetch_sessions_are_counted(metered: BrokerProcess) -> None:
    """Kafka's beans of FetchSessionCache (KIP-227)."""
    bean = "kafka_server_fetchsessioncache"
    with Wire(metered.connect()) as wire:
        wire.create_topic("t", partitions=2)
        request = fetch_request("t", max_wait_ms=0)
        request.session_epoch = 0
        assert wire.call(FETCH, 11, request).session_id > 0
        found = scrape(metered)
        assert found[f"{bean}_numincrementalfetchsessions"] == 1
        assert found[f"{bean}_numincrementalfetchpartitionscached"] == 1
        assert found[f"{bean}_incrementalfetchsessionevictions_total"] == 0
