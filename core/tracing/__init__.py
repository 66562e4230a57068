"""OpenTelemetry spans from calls to decisions. The package needs the extra ``tracing``, and is not imported while
tracing is off."""
