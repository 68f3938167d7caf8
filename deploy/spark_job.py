"""The Spark job of docker-compose.yml: committed records per topic partition and minute, to its standard output."""

import os
from pathlib import Path

import trio
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import fencepost


def client_config() -> dict[str, str]:
    """The options of the connection, under Kafka's names; those of TLS and login are in the file CLIENT_CONFIG."""
    config = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
    if "CLIENT_CONFIG" in os.environ:
        for line in Path(os.environ["CLIENT_CONFIG"]).read_text().splitlines():
            name, _, value = line.partition("=")
            config[name] = value
    return config


async def make_topic(config: dict[str, str], topic: str) -> None:
    """Make the topic where it is not there yet, so that the query has something to wait for."""
    async with fencepost.Client.from_config({"client.id": "spark-job", **config}) as kafka, kafka.admin() as admin:
        await admin.create_topics(topic, if_not_exists=True)


def main() -> None:
    """Run until the container is stopped; a new start goes on from the checkpoint."""
    config, topic = client_config(), os.environ["TOPIC"]
    trio.run(make_topic, config, topic)
    spark = SparkSession.builder.master("local[2]").appName("fencepost counts").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    records = (
        spark.readStream.format("fencepost")
        .options(**{f"kafka.{name}": value for name, value in config.items()})
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = records.groupBy("partition", F.window("timestamp", "1 minute")).agg(F.count("*").alias("records"))
    query = (
        counts.writeStream.outputMode("update")
        .format("console")
        .option("truncate", "false")
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .trigger(processingTime="5 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
