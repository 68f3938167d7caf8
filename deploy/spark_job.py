"""The Spark job of docker-compose.yml: committed records per topic partition and minute, to its standard output."""

import os

import trio
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import fencepost


async def make_topic(bootstrap: str, topic: str) -> None:
    """Make the topic where it is not there yet, so that the query has something to wait for."""
    async with fencepost.Client(bootstrap, client_id="spark-job") as kafka, kafka.admin() as admin:
        await admin.create_topics(topic, if_not_exists=True)


def main() -> None:
    """Run until the container is stopped; a new start goes on from the checkpoint."""
    bootstrap, topic = os.environ["BOOTSTRAP_SERVERS"], os.environ["TOPIC"]
    trio.run(make_topic, bootstrap, topic)
    spark = SparkSession.builder.master("local[2]").appName("fencepost counts").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    records = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", bootstrap)
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
