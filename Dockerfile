# Two images. The broker, without Java or Spark (the default):
#   docker build -t fencepost .
#   docker run -p 9092:9092 -v fencepost:/var/lib/fencepost -e FENCEPOST_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 fencepost
# On several cores (docs/cores.md) it needs a port for each:
#   docker run -p 9092-9094:9092-9094 -v fencepost:/var/lib/fencepost -e FENCEPOST_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 fencepost \
#       serve --data /var/lib/fencepost/data --listen 0.0.0.0:9092 --metrics 0.0.0.0:9404 --cores 3
# The broker image also serves a cluster (`--store`), as docker-compose.cluster.yml starts it.
# And a Spark with the data source, for the job of docker-compose.yml:
#   docker build --target spark -t fencepost-spark .

# The compiler, for the compiled record code, stays behind in these two.
FROM python:3.14-slim-bookworm@sha256:9ab8d9c8514b44f90cf0029dd42fdd7e9e211e639c8b995304cc04568dee900f AS source
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY fencepost ./fencepost
COPY pyspark_fencepost ./pyspark_fencepost

FROM source AS broker-build
COPY deploy/broker-image.txt ./
RUN python -m venv /opt/fencepost \
    && /opt/fencepost/bin/pip install --no-cache-dir --require-hashes -r broker-image.txt \
    && /opt/fencepost/bin/pip install --no-cache-dir --no-deps .

FROM source AS spark-build
COPY deploy/spark-image.txt ./
RUN python -m venv /opt/fencepost \
    && /opt/fencepost/bin/pip install --no-cache-dir --require-hashes -r spark-image.txt \
    && /opt/fencepost/bin/pip install --no-cache-dir --no-deps .

FROM python:3.14-slim-bookworm@sha256:9ab8d9c8514b44f90cf0029dd42fdd7e9e211e639c8b995304cc04568dee900f AS spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/spark --create-home spark
COPY --from=spark-build /opt/fencepost /opt/fencepost
COPY deploy/spark_job.py /opt/fencepost/jobs/
ENV PATH=/opt/fencepost/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/fencepost/bin/python
USER spark
WORKDIR /var/lib/spark
VOLUME ["/var/lib/spark"]
ENTRYPOINT ["python", "/opt/fencepost/jobs/spark_job.py"]

FROM python:3.14-slim-bookworm@sha256:9ab8d9c8514b44f90cf0029dd42fdd7e9e211e639c8b995304cc04568dee900f AS broker
LABEL org.opencontainers.image.title="fencepost" \
      org.opencontainers.image.description="A broker that speaks Kafka's protocol, with true transactions and no JVM" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/fencepost --create-home fencepost
COPY --from=broker-build /opt/fencepost /opt/fencepost
ENV PATH=/opt/fencepost/bin:$PATH \
    PYTHONUNBUFFERED=1
USER fencepost
WORKDIR /var/lib/fencepost
VOLUME ["/var/lib/fencepost"]
EXPOSE 9092 9404 8080
# /ready answers 200 once recovery is over and every partition is served. It needs --metrics, which CMD has.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/ready', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["fencepost"]
CMD ["serve", "--data", "/var/lib/fencepost/data", "--listen", "0.0.0.0:9092", "--metrics", "0.0.0.0:9404"]
