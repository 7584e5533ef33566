# syntax=docker/dockerfile:1
# Airflow's own image with Streamvault and its DAGs. Built from the top of the repository.

FROM apache/airflow:3.3.2-python3.12
COPY --chown=airflow:0 . /opt/airflow/streamvault
WORKDIR /opt/airflow
RUN echo "pyspark-client; sys_platform == 'never'" > overrides.txt \
    && uv pip install --no-cache --override overrides.txt './streamvault[airflow,java]' \
    && mkdir -p dags \
    && cp "$(python -c 'import streamvault.dags as dags; print(*dags.__path__)')"/[a-z]*.py dags/
