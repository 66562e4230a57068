# syntax=docker/dockerfile:1
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
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

FROM python:${PYTHON_VERSION}-slim
COPY --from=build /opt/kornel /opt/kornel
ENV PATH=/opt/kornel/bin:$PATH PYTHONUNBUFFERED=1

# Numeric, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 10001:10001
WORKDIR /tmp
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["kornel", "health", "--grpc", "127.0.0.1:50051"]
ENTRYPOINT ["kornel"]
# Reachable from inside only, until it is told who may use it or --insecure-anywhere.
CMD ["serve"]
