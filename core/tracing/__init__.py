"""OpenTelemetry spans from call to decision. Needs the extra ``tracing``; nothing here is imported while it is off."""
