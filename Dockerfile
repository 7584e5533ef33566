# syntax=docker/dockerfile:1
# The command line with a Java runtime for Spark, as an ordinary user. The steps are in bin/image.

# A release names the digest of the base, so that it is built from nothing else:
#   docker build --build-arg BASE=python:3.11-slim@sha256:… .
ARG BASE=python:3.11-slim

FROM $BASE AS build
ENV STREAMVAULT_CACHE=/var/cache/streamvault UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
# with 0, a cache of uv that the build mounts at /root/.cache/uv saves the downloads
ARG UV_NO_CACHE=1
WORKDIR /src
COPY . .
RUN bin/image /opt/streamvault

FROM $BASE
COPY --from=build /opt/streamvault /opt/streamvault
RUN useradd --create-home --uid 10001 streamvault
ENV PATH=/opt/streamvault/bin:$PATH
USER 10001:10001
WORKDIR /home/streamvault
ENTRYPOINT ["streamvault"]
CMD ["--help"]
