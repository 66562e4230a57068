# syntax=docker/dockerfile:1
# An exact version, so that two builds have the same base; a site that mirrors images names it by digest instead.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# Dependencies first: they change less often than the code, so this layer is usually cached.
COPY requirements/runtime.lock requirements/build.lock requirements/
RUN python -m venv /opt/kornel \
    && /opt/kornel/bin/pip install --require-hashes --no-deps -r requirements/runtime.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --no-deps -r requirements/build.lock

COPY . .
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/kornel/bin/pip install --no-deps --no-index /dist/*.whl

FROM ${BASE}
COPY --from=build /opt/kornel /opt/kornel
ENV PATH=/opt/kornel/bin:$PATH PYTHONUNBUFFERED=1 STATE_DIRECTORY=/var/lib/kornel
# Where the history is unless --history says otherwise; mount a volume here to keep it.
RUN install -d -o 10001 -g 10001 -m 0750 /var/lib/kornel

# Numeric, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 10001:10001
WORKDIR /tmp
# gRPC, and HTTP
EXPOSE 50051 9080
# KORNEL_ADDRESS, KORNEL_CA and the others tell it how to reach a core that is secured.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["kornel", "health"]
ENTRYPOINT ["kornel"]
# Reachable from inside only, until it is told who may use it or --insecure-anywhere.
CMD ["serve"]

ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Kornel" \
    org.opencontainers.image.description="Cluster-scheduler core served over gRPC" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}"
