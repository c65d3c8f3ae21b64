"""Access control: accounts and white lists (4.9 to 5.3.2), users and policies (5.3 and later)."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import Header, request, response


@request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
class UpdateAndCreateAclConfig(Header):
    """An account as it shall be; ``topic_perms`` and ``group_perms`` are joined by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@request(RequestCode.DELETE_ACL_CONFIG)
class DeleteAclConfig(Header):
    """Forget an account."""

    access_key: str


@response(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
class GetBrokerClusterAclInfoResponse(Header):
    """Versions of a broker's lists, as JSON text."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@request(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
class UpdateGlobalWhiteAddrsConfig(Header):
    """Addresses that need no signature, joined by commas."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@request(RequestCode.AUTH_CREATE_USER)
class CreateUser(Header):
    """A new user; password, type and status are in the body."""

    username: str


@request(RequestCode.AUTH_UPDATE_USER)
class UpdateUser(Header):
    """A user as it shall be; password, type and status are in the body."""

    username: str


@request(RequestCode.AUTH_DELETE_USER)
class DeleteUser(Header):
    """Forget a user."""

    username: str


@request(RequestCode.AUTH_GET_USER)
class GetUser(Header):
    """Ask for a user."""

    username: str


@request(RequestCode.AUTH_LIST_USER)
class ListUsers(Header):
    """All users, or those that match ``filter``."""

    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL)
class CreateAcl(Header):
    """New policies for a subject such as ``User:alice``; they are in the body."""

    subject: str


@request(RequestCode.AUTH_UPDATE_ACL)
class UpdateAcl(Header):
    """Policies of a subject as they shall be; they are in the body."""

    subject: str


@request(RequestCode.AUTH_DELETE_ACL)
class DeleteAcl(Header):
    """Forget a subject's policies, all or those of one type for one resource."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL)
class GetAcl(Header):
    """Ask for the policies of a subject."""

    subject: str


@request(RequestCode.AUTH_LIST_ACL)
class ListAcls(Header):
    """All policies, or those whose subject and resource match."""

    subject_filter: str | None = None
    resource_filter: str | None = None
