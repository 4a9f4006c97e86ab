"""Access control files: what is read, what a change leaves, and that no error tells a secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orbitmq.broker.access import files
from orbitmq.broker.access.accounts import Config
from orbitmq.broker.access.files import AclPaths
from orbitmq.errors import ConfigurationError
from orbitmq.message.config import DataVersion
from tests.support.access import PLAIN_ACL, write_acl

NOW_MS = 1_795_257_568_195


def places(home: Path) -> AclPaths:
    return AclPaths(home / "conf/plain_acl.yml", home / "conf/acl")


def test_files_of_the_directory_come_before_the_main_file(tmp_path: Path) -> None:
    names = ["conf/acl/b.yml", "conf/acl/c.yaml", "conf/acl/sub/a.yml"]
    for name in (*names, "conf/plain_acl.yml", "conf/acl/notes.txt", "conf/acl/b.yml.tmp", "conf/tools.yml"):
        write_acl(tmp_path, "", name)
    assert [str(path.relative_to(tmp_path)) for path in places(tmp_path).paths()] == [*names, "conf/plain_acl.yml"]


def test_any_change_of_any_file_is_seen(tmp_path: Path) -> None:
    path, found = write_acl(tmp_path), places(tmp_path)
    seen = [found.signature()]
    path.write_text(PLAIN_ACL + "\n")
    seen.append(found.signature())
    os.utime(path, ns=(1, 1))
    seen.append(found.signature())
    other = write_acl(tmp_path, "", "conf/acl/more.yml")
    seen.append(found.signature())
    other.unlink()
    assert len(set(seen)) == 4
    assert found.signature() == seen[2]


@pytest.mark.parametrize(
    "text",
    [
        "- hush hush\n",
        "accounts: hush hush\n",
        "accounts: [\n",
        "secretKey: *hush-hush\n",
        "secretKey: !!python/object:hush.hush {}\n",
        "secretKey: 'hush hush\n",
        "dataVersion: [{counter: hush}]\n",
        "globalWhiteRemoteAddresses: 1.2.3.4\n",
        "secretKey: 2026-99-99\n",
        "a: \x00hush\n",
        "[" * 5000,
        "secretKey: !!bool hush\n",
        "secretKey: !!float\n",
        "secretKey: !!timestamp hush\n",
        "a: &a [hush, hush]\nglobalWhiteRemoteAddresses: [*a]\n",
        "a: &a [hush]\naccounts: [{accessKey: 12345678, secretKey: hush-hush, topicPerms: [{hush: *a}]}]\n",
    ],
)
def test_a_broken_file_is_named_and_its_text_is_not_told(tmp_path: Path, text: str) -> None:
    path = write_acl(tmp_path, text)
    with pytest.raises(ConfigurationError) as refused:
        files.parse(path, files.load_document(path))
    assert str(path) in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_file_that_is_no_such_file_at_all_is_not_read(tmp_path: Path) -> None:
    path = write_acl(tmp_path, "#" * (files.FILE_SIZE_MAX + 1))
    with pytest.raises(ConfigurationError, match="no access control file"):
        files.load_document(path)


def test_a_file_without_accounts_says_nothing_and_one_without_a_byte_was_cut_off(tmp_path: Path) -> None:
    path = write_acl(tmp_path, "# none yet\n")
    assert files.parse(path, files.load_document(path)).accounts == ()
    path.write_bytes(b"")
    with pytest.raises(ConfigurationError, match="is empty, its accounts are lost"):
        files.load_document(path)


def test_a_new_account_comes_last_and_the_rest_stays_as_it_was(tmp_path: Path) -> None:
    path = write_acl(tmp_path, PLAIN_ACL + "aMemberOfTomorrow: kept\n")
    document = files.load_document(path)
    config = Config("new-account", "new secret", "10.1.*.*", False, "DENY", "SUB", ("a=DENY", "b=PUB|SUB"), None)
    files.save(path, files.with_next_version(files.with_account(document, config), NOW_MS))
    lines = path.read_text().splitlines()
    assert lines[:12] == PLAIN_ACL.replace("whiteRemoteAddress:\n", "whiteRemoteAddress: null\n").splitlines()[:12]
    assert lines[lines.index("- accessKey: new-account") :] == [
        "- accessKey: new-account",
        "  secretKey: new secret",
        "  whiteRemoteAddress: 10.1.*.*",
        "  admin: false",
        "  defaultTopicPerm: DENY",
        "  defaultGroupPerm: SUB",
        "  topicPerms:",
        "  - a=DENY",
        "  - b=PUB|SUB",
        "aMemberOfTomorrow: kept",
        "dataVersion:",
        "- counter: 1",
        f"  timestamp: {NOW_MS}",
    ]


def test_changing_an_account_keeps_what_the_change_leaves_out(tmp_path: Path) -> None:
    document = files.load_document(write_acl(tmp_path))
    changed = files.with_account(document, Config("owner-of-orders", "a new secret", admin=True))
    before, after = (next(a for a in d["accounts"] if a["accessKey"] == "owner-of-orders") for d in (document, changed))
    assert after == {**before, "secretKey": "a new secret", "admin": True}


def test_a_removed_account_is_gone_and_versions_count(tmp_path: Path) -> None:
    document = files.load_document(write_acl(tmp_path))
    changed = files.with_next_version(files.without_account(document, "owner-of-orders"), NOW_MS)
    changed = files.with_next_version(files.with_white(changed, ["1.1.1.1"]), NOW_MS + 1)
    assert [account["accessKey"] for account in changed["accounts"]] == [
        "administrator",
        "an-application",
        "no-permission",
    ]
    assert changed["globalWhiteRemoteAddresses"] == ["1.1.1.1"]
    assert files.version_of(changed) == DataVersion(2, NOW_MS + 1)


def test_who_may_read_the_file_stays_and_a_new_one_is_its_owners_alone(tmp_path: Path) -> None:
    path = write_acl(tmp_path)
    path.chmod(0o640)
    files.save(path, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    files.save(tmp_path / "conf/acl/new.yml", {})
    assert stat.S_IMODE((tmp_path / "conf/acl/new.yml").stat().st_mode) == 0o600


def test_text_survives_being_written(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    account = {"accessKey": "0123456789", "secretKey": "密 钥: # {x} 'y' \"z\" \\", "whiteRemoteAddress": ""}
    files.save(path, {"accounts": [account]})
    assert files.load_document(path) == {"accounts": [account]}
