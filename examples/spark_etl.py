"""Copy large orders with Spark, each once: python examples/spark_etl.py 127.0.0.1:9092 /tmp/spark-etl

Spark reads committed orders, keeps the large ones, and writes them to another topic, one transaction for each
micro-batch. Kill the program with kill -9 and run it again with the same directory: each order is copied once. It needs
Java 17 or newer, Spark's part of the installation (docs/spark.md), and an active environment.
"""

import sys
from collections import Counter

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.sync import Client

ORDERS, LARGE, COUNT, LIMIT = "etl-orders", "etl-large", 1000, 60


def read(kafka: Client, topic: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records."""
    with kafka.consumer(topic) as consumer:
        return [(r.key or b"", r.value or b"") for batch in consumer.read_to_end() for r in batch]


def place_orders(kafka: Client) -> None:
    """Write the orders, all of them or none, unless an earlier run did."""
    with kafka.admin() as admin:
        admin.create_topics([ORDERS, LARGE], partitions=2, if_not_exists=True)
    with kafka.transactional_producer("etl-orders") as producer:
        if not read(kafka, ORDERS):
            with producer.transaction() as txn:
                txn.send_many(ORDERS, ((b"%d" % n, b"%d EUR" % (n % 97)) for n in range(COUNT)))


def copy_large(address: str, directory: str) -> None:
    """Copy what is there, 125 orders in a micro-batch; the directory holds how far the query is."""
    # One process, and no web page: for a cluster, spark-submit says where the query runs.
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    orders = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "125")
        .load()
    )
    query = (
        orders.where(F.split(orders.value.cast("string"), " ")[0].cast("int") >= LIMIT)
        .select("key", "value")
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", address)
        .option("topic", LARGE)
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"copied in {sum(progress.numInputRows > 0 for progress in query.recentProgress)} micro-batches")
    spark.stop()


def main(address: str, directory: str) -> bool:
    """Whether each large order was copied once, and no other."""
    with Client(address, client_id="etl", timeout=60) as kafka:
        place_orders(kafka)
        copy_large(address, directory)
        orders, copies = read(kafka, ORDERS), read(kafka, LARGE)
    large = [(number, amount) for number, amount in orders if int(amount.split()[0]) >= LIMIT]
    print(f"{len(orders)} orders, {len(large)} large ones, {len(copies)} copies")
    return Counter(copies) == Counter(large) and len(orders) == COUNT


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1], sys.argv[2]) else 1)
