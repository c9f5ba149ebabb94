# The driver and the executors of a Spark cluster, from one image: the same Python, Spark, Delta and package for both.
#
#   docker build -t lake-retention .
#   docker run lake-retention spark-class org.apache.spark.deploy.worker.Worker spark://master:7077
#   docker run lake-retention spark-submit --master spark://master:7077 jobs/retain.py --warehouse s3://bucket/lake
FROM python:3.11-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/*

ENV UV_NO_CACHE=1
WORKDIR /opt/lake-retention
RUN python3 -m venv /opt/venv && /opt/venv/bin/python -m pip install --quiet --no-cache-dir uv

COPY pyproject.toml requirements.lock README.md LICENSE CHANGELOG.md ./
COPY airflow_dags airflow_dags
COPY jobs jobs
COPY retention retention
COPY schemas schemas
# Spark's archive holds JARs: packing them again takes ten seconds and saves nothing.
RUN /opt/venv/bin/uv pip install --quiet --python /opt/venv/bin/python --constraint requirements.lock \
    --config-settings-package pyspark:--build-option=--compression=stored '.[spark]'
RUN /opt/venv/bin/python -m retention.engines.spark.jars
RUN /opt/venv/bin/python -m retention.engines.spark.submit

ENV PATH=/opt/venv/bin:$PATH
ENV PYSPARK_PYTHON=/opt/venv/bin/python
ENTRYPOINT ["tini", "--"]
CMD ["retention", "--help"]
