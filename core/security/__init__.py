"""Controls access: TLS, identities, the policy with grants, and limits for each peer. If in doubt, access is denied.

:mod:`.security` puts the parts together; gRPC passes :mod:`.interceptor`, HTTP
:mod:`kornel.core.rest.http.guard_door`. For administrators: docs/security.md.
"""
