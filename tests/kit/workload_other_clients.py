"""Transactional writers of a chaos run on further clients of others: kafka-python, and Java's in a JVM of its own."""

import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka import errors as kafka_python_errors
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.interop.java.jars import class_path, java
from tests.kit.history import Journal
from tests.kit.workload_writers import TRANSACTION_TOPIC, Task, give_up, plans_of

JAVA_FATAL = (
    "ProducerFencedException",
    "InvalidProducerEpochException",
    "OutOfOrderSequenceException",
    "InvalidPidMappingException",
    "AuthorizationException",
    "UnsupportedVersionException",
    "IllegalStateException",
)
"""After these a producer cannot go on (KafkaProducer's documentation)."""


def kafka_python_transactions(task: Task) -> None:
    """Transactions over several partitions, TV1."""
    producer = KafkaProducer(
        bootstrap_servers=task.address.split(","),
        transactional_id=task.name,
        transaction_timeout_ms=task.timeout_ms,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
    )
    patient = _patient(kafka_python_errors.KafkaTimeoutError)
    try:
        patient(producer.init_transactions)
    except kafka_python_errors.KafkaError as error:
        give_up(error)

    def commit() -> None:
        """It drops EndTxn, and reports success, if a refused batch made it ask for a new epoch (3.0.12, KIP-360)."""
        before = producer._transaction_manager.producer_id_and_epoch
        patient(producer.commit_transaction)
        if producer._transaction_manager.producer_id_and_epoch != before:
            give_up("its epoch has changed while it committed")

    _transactions(
        task,
        begin=producer.begin_transaction,
        send=lambda partition, value: producer.send(TRANSACTION_TOPIC, value, partition=partition),
        commit=commit,
        abort=lambda: patient(producer.abort_transaction),
        failures=(kafka_python_errors.KafkaError,),
        is_fatal=lambda error: isinstance(error, kafka_python_errors.ProducerFencedError),
    )


def java_transactions(task: Task) -> None:
    """The same with Kafka's own client, TV2."""
    port = launch_gateway(classpath=class_path(), java_path=java(), javaopts=["-Xmx128m"], die_on_exit=True)
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)).jvm
    settings = {
        "bootstrap.servers": task.address,
        "transactional.id": task.name,
        "transaction.timeout.ms": str(task.timeout_ms),
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "200",
        "retry.backoff.ms": "20",
        "key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
        "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
    }
    clients = jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(settings)
    patient = _patient(Py4JJavaError, lambda error: _java_class(error) == "TimeoutException")
    try:
        patient(producer.initTransactions)
    except Py4JJavaError as error:
        give_up(error.java_exception.toString())
    _transactions(
        task,
        begin=producer.beginTransaction,
        send=lambda partition, value: producer.send(clients.ProducerRecord(TRANSACTION_TOPIC, partition, None, value)),
        commit=lambda: patient(producer.commitTransaction),
        abort=lambda: patient(producer.abortTransaction),
        failures=(Py4JJavaError,),
        is_fatal=lambda error: _java_class(error) in JAVA_FATAL,
    )


def _java_class(error: Any) -> str:
    name: str = error.java_exception.getClass().getSimpleName()
    return name


def _patient(kind: type[Exception], is_timeout: Callable[[Any], bool] = lambda _: True) -> Callable[[Any], None]:
    """Repeats a step of a transaction after timeouts, as both clients ask for."""

    def run(step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                return
            except kind as error:
                if not is_timeout(error):
                    raise

    return run


def _transactions(
    task: Task,
    *,
    begin: Callable[[], object],
    send: Callable[[int, bytes], object],
    commit: Callable[[], object],
    abort: Callable[[], object],
    failures: tuple[type[Exception], ...],
    is_fatal: Callable[[Exception], bool],
) -> None:
    journal = Journal(task.journal)
    for number, plan in plans_of(task):
        journal.write("begin", number)
        try:
            begin()
            for partition, value, seconds in plan.records:
                journal.write("send", number, TRANSACTION_TOPIC, partition, value)
                send(partition, value.encode())
                time.sleep(seconds)
            if plan.commit:
                journal.write("ask", number)
                commit()
                journal.write("committed", number)
                continue
        except failures as error:
            if is_fatal(error):
                give_up(error)
        try:
            abort()
        except failures as error:
            give_up(error)
        journal.write("aborted", number)
