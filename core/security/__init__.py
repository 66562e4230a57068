"""Access control: TLS, identities, the policy that grants, and limits for each peer. Everything here fails closed.

:mod:`.security` puts the parts together; gRPC passes :mod:`.interceptor`, HTTP :mod:`kornel.core.rest.guard_door`. For
administrators: docs/security.md.
"""
