# The driver and the executors of a Spark cluster, from one image: the same Python, Spark, Delta and package for both.
#
#   docker build --build-arg BUILD=$(git rev-parse --short=12 HEAD) -t lake-retention .
#   docker run lake-retention spark-class org.apache.spark.deploy.worker.Worker spark://master:7077
#   docker run lake-retention spark-submit --master spark://master:7077 jobs/retain.py --warehouse s3://bucket/lake
#
# Name the base by its digest where an image shall be the same whenever it is built:
#   --build-arg PYTHON=python:3.11-slim-bookworm@sha256:…
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON}

# Debian deletes older versions, so that pinned ones could not be installed for long.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --home-dir /var/lib/retention retention

ENV UV_NO_CACHE=1
RUN python3 -m venv /opt/venv && /opt/venv/bin/python -m pip install --quiet --no-cache-dir uv==0.13.8
ENV PATH=/opt/venv/bin:$PATH
ENV PYSPARK_PYTHON=/opt/venv/bin/python
WORKDIR /opt/lake-retention

# Dependencies change seldom, sources often: this layer stays. It has the extras spark, connect and lineage.
COPY requirements-image.lock ./
# Spark's archive holds JARs: packing them again takes ten seconds and saves nothing.
RUN uv pip install --quiet --python /opt/venv/bin/python --require-hashes --requirements requirements-image.lock \
    --config-settings-package pyspark:--build-option=--compression=stored

COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY scripts/build_record.py scripts/build_record.py
COPY airflow_dags airflow_dags
COPY jobs jobs
COPY retention retention
ARG BUILD=
RUN RETENTION_BUILD="$BUILD" uv pip install --quiet --python /opt/venv/bin/python --no-deps . \
 && python -m retention.engines.spark.jars \
 && python -m retention.engines.spark.submit

ENV SPARK_WORKER_DIR=/var/lib/retention/work
ENV SPARK_LOG_DIR=/var/lib/retention/logs
USER 1000
ENTRYPOINT ["tini", "--"]
CMD ["retention", "--help"]
