# syntax=docker/dockerfile:1
# An exact version, so that two builds have the same base; a site that mirrors images names it by digest instead.
ARG BASE=python:3.13.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# Dependencies first: they change less often than the code, so this layer is usually cached.
COPY requirements/runtime.lock requirements/build.lock requirements/
RUN python -m venv --without-pip /opt/kornel \
    && pip --python /opt/kornel/bin/python install --require-hashes --no-deps -r requirements/runtime.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --no-deps -r requirements/build.lock

COPY . .
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && pip --python /opt/kornel/bin/python install --no-deps --no-index /dist/*.whl

FROM ${BASE}
# Nothing is installed into a container that runs: pip would only be something to keep up to date.
RUN pip uninstall --yes --root-user-action ignore pip \
    && python -c "import pathlib, shutil, sysconfig; shutil.rmtree(pathlib.Path(sysconfig.get_path('stdlib')) / 'ensurepip')" \
    # Where the history is unless --history says otherwise; mount a volume here to keep it.
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/kornel
COPY --from=build /opt/kornel /opt/kornel
ENV PATH=/opt/kornel/bin:$PATH PYTHONUNBUFFERED=1 STATE_DIRECTORY=/var/lib/kornel

# Numeric, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 10001:10001
WORKDIR /tmp
# gRPC, and HTTP
EXPOSE 50051 9080
# KORNEL_ADDRESS, KORNEL_CA and the others tell it how to reach a core that is secured. Without further options it answers
# without importing gRPC.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["kornel", "health"]
ENTRYPOINT ["kornel"]
# Reachable from inside only, until it is told who may use it or --insecure-anywhere.
CMD ["serve"]

ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Kornel" \
    org.opencontainers.image.description="Cluster-scheduler core served over gRPC" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}"
