"""Bodies of access control 2.0 (5.3 and later): users and policies."""

import msgspec


class UserInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A user: type ``Super`` or ``Normal``, status ``enable`` or ``disable``."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntry(msgspec.Struct, frozen=True, rename="camel"):
    """What may be done (``actions``) with what (``resource``, as ``Topic:a*``), from where."""

    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """Entries of one kind, ``Custom`` or ``Default``."""

    policy_type: str | None = None
    entries: tuple[PolicyEntry, ...] | None = None


class AclInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The policies of a subject (``User:<name>``)."""

    subject: str | None = None
    policies: tuple[Policy, ...] | None = None
