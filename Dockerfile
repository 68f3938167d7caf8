# The broker alone: no Spark, no Java. `docker build -t fencepost .`, then
# `docker run -p 9092:9092 -v fencepost:/var/lib/fencepost fencepost`.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY fencepost ./fencepost
COPY pyspark_fencepost ./pyspark_fencepost
COPY deploy/runtime_pins.py ./deploy/
# Only the runtime's pins (by hash); the rest of constraints.txt serves tests and the demo.
RUN python -m venv /opt/fencepost \
    && python deploy/runtime_pins.py constraints.txt pyproject.toml > /tmp/runtime.txt \
    && /opt/fencepost/bin/pip install --no-cache-dir --require-hashes -r /tmp/runtime.txt \
    && /opt/fencepost/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.title="fencepost" \
      org.opencontainers.image.description="A broker that speaks Kafka's protocol, with true transactions and no JVM" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/fencepost --create-home fencepost
COPY --from=build /opt/fencepost /opt/fencepost
ENV PATH=/opt/fencepost/bin:$PATH \
    PYTHONUNBUFFERED=1
USER fencepost
WORKDIR /var/lib/fencepost
VOLUME ["/var/lib/fencepost"]
EXPOSE 9092 9404
# A connection is accepted only once recovery is over, so that an open port means a broker that serves.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 2).close()"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["fencepost"]
CMD ["serve", "--data", "/var/lib/fencepost", "--listen", "0.0.0.0:9092"]
