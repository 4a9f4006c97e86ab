"""Administrative requests about access control: accounts, white list, versions. All need an administrator.

RocketMQ does not respond to some of them while access control is off; orbitmq always responds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from orbitmq.broker.access import files
from orbitmq.broker.access.accounts import Config, check_keys, is_permission
from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.errors import ConfigurationError, RequestRejected
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.bodies_access import AccountConfig, AclConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_access import (
    AclVersionHeader,
    DeleteAccountHeader,
    UpdateAccountHeader,
    UpdateGlobalWhiteAddressesHeader,
)
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

OFF = "access control is off: option aclEnable is false"


class AccessAdministration:
    """Handlers for the access control files; `control` is None while access control is off."""

    def __init__(self, control: AccessControl | None, identity: AdvertisedBroker) -> None:
        self._control = control
        self._identity = identity

    def add_to(self, router: Router) -> None:
        router.add_change(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self.put_account)
        router.add_change(RequestCode.DELETE_ACL_CONFIG, self.delete_account)
        router.add_change(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self.put_white_list)
        router.add(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self.versions)
        router.add(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, self.everything)

    async def put_account(self, _connection: Connection, command: Command) -> Command:
        """Add an account to the main file, or change it in the file that has it."""
        control = self._active(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)
        header = command.header(UpdateAccountHeader)

        async def put() -> None:
            config = _config_of(header)
            path = control.policy.owners.get(config.access_key, control.main_file)
            await control.change(path, lambda document: files.with_account(document, config))

        return await _updated(command, put(), ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)

    async def delete_account(self, _connection: Connection, command: Command) -> Command:
        control = self._active(ResponseCode.DELETE_ACL_CONFIG_FAILED)
        key = command.header(DeleteAccountHeader).access_key
        path = control.policy.owners.get(key)
        if path is None:
            remark = f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
            raise RequestRejected(ResponseCode.DELETE_ACL_CONFIG_FAILED, remark)
        removal = control.change(path, lambda document: files.without_account(document, key))
        return await _updated(command, removal, ResponseCode.DELETE_ACL_CONFIG_FAILED)

    async def put_white_list(self, _connection: Connection, command: Command) -> Command:
        """The white list of one file that is in use: a request must not choose a path."""
        control = self._active(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)
        header = command.header(UpdateGlobalWhiteAddressesHeader)
        known = {str(file.path): file.path for file in control.policy.files}
        path = known.get(header.acl_file_full_path) if header.acl_file_full_path else control.main_file
        if path is None:
            remark = f"{header.acl_file_full_path} is no access control file of this broker"
            raise RequestRejected(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, remark)
        addresses = [text.strip() for text in _white_addresses(header.global_white_addrs) if text.strip()]
        change = control.change(path, lambda document: files.with_white(document, addresses))
        return await _updated(command, change, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)

    def versions(self, _connection: Connection, command: Command) -> Command:
        control = self._active(ResponseCode.SYSTEM_ERROR)
        by_file = {str(file.path): file.version for file in control.policy.files}
        versions = encode(control.version()).decode(), encode(by_file).decode()
        header = AclVersionHeader(*versions, self._identity.name, self._identity.address(), self._identity.cluster)
        return command.response(ResponseCode.SUCCESS, header=header)

    def everything(self, _connection: Connection, command: Command) -> Command:
        """All accounts with their secrets: tools show and copy them."""
        control = self._active(ResponseCode.SYSTEM_ERROR)
        white = [address for file in control.policy.files for address in file.white]
        accounts = [_account(config) for config in _used(control)]
        answer = command.response(ResponseCode.SUCCESS, body=encode(AclConfig(white, accounts)))
        answer.ext = {}
        return answer

    def _active(self, failure: int) -> AccessControl:
        if self._control is None:
            raise RequestRejected(failure, OFF)
        return self._control


async def _updated(command: Command, work: Awaitable[None], failure: int) -> Command:
    try:
        await work
    except ConfigurationError as error:
        raise RequestRejected(failure, str(error)) from error
    except OSError as error:
        raise RequestRejected(failure, f"{error.filename} cannot be written: {error.strerror}") from error
    answer = command.response(ResponseCode.SUCCESS)
    answer.ext = {}
    return answer


def _config_of(header: UpdateAccountHeader) -> Config:
    """The account that a request declares. RocketMQ stores unknown permissions, which then deny; they are refused."""
    config = Config(
        header.access_key,
        header.secret_key or "",
        header.white_remote_address,
        header.admin,
        header.default_topic_perm or None,
        header.default_group_perm or None,
        _lines(header.topic_perms),
        _lines(header.group_perms),
    )
    check_keys(config)
    for text in filter(None, (config.default_topic_perm, config.default_group_perm)):
        _check_permission(text, text)
    for line in (*(config.topic_perms or ()), *(config.group_perms or ())):
        name, equals, text = line.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"{line!r} is not name=permission, as orders=PUB|SUB")
        _check_permission(line, text)
    return config


def _check_permission(line: str, text: str) -> None:
    if not is_permission(text.strip()):
        raise ConfigurationError(f"{line!r}: a permission is DENY, PUB, SUB or PUB|SUB")


def _lines(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text else None


def _white_addresses(text: str) -> Iterable[str]:
    """Addresses between commas; commas inside braces belong to one pattern."""
    found, depth = "", 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == "," and depth <= 0:
            yield found
            found = ""
        else:
            found += character
    yield found


def _used(control: AccessControl) -> Iterable[Config]:
    """For an account in several files, only the entry that is in effect."""
    owners = control.policy.owners
    for file in control.policy.files:
        yield from (config for config in file.accounts if owners[config.access_key] == file.path)


def _account(config: Config) -> AccountConfig:
    return AccountConfig(
        config.access_key,
        config.secret_key,
        config.admin,
        config.white_remote_address,
        config.default_topic_perm,
        config.default_group_perm,
        None if config.topic_perms is None else list(config.topic_perms),
        None if config.group_perms is None else list(config.group_perms),
    )
