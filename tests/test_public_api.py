"""What users may import is listed, documented, typed, and says what it raises."""

from __future__ import annotations

import importlib
import re

import griffe
import pytest

from reference import api
from tests.support import public_api as public


def _is_told_elsewhere(owner: griffe.Class, member: griffe.Object) -> bool:
    """Members of enumerations whose value is the text, settings, whose table has it, and methods of the other face."""
    if api.wrapped_method(member) is not None:
        return True
    if not isinstance(member, griffe.Attribute):
        return False
    is_text = str(member.value).startswith(("'", '"')) and any(str(base) == "Enum" for base in owner.bases)
    return is_text or "Annotated" in str(member.annotation)


def _undocumented(owner: griffe.Class) -> list[str]:
    return [
        name
        for name, member in api.public_members(owner).items()
        if not api.documentation(member)
        and not re.search(rf"\b{name}\b", api.documentation(owner))
        and not _is_told_elsewhere(owner, member)
    ]


def test_the_client_room_says_which_modules_are_public() -> None:
    text = str(importlib.import_module("orbitmq.client").__doc__)
    named = re.findall(r"^    (orbitmq\.client\.[\w.]+) ", text, re.MULTILINE)
    assert ["orbitmq.client", *named] == list(api.MODULES["client-api.md"])


@pytest.mark.parametrize("path", public.MODULES)
def test_a_public_module_has_the_names_it_lists(path: str) -> None:
    module = importlib.import_module(path)
    assert list(api.public_names(path)) == module.__all__
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("path", public.MODULES)
def test_every_public_name_and_member_is_documented(path: str) -> None:
    names = api.public_names(path)
    assert not [name for name, found in names.items() if not api.documentation(found)]
    members = {name: _undocumented(found) for name, found in names.items() if isinstance(found, griffe.Class)}
    assert not {name: missing for name, missing in members.items() if missing}


def test_every_public_call_names_the_errors_it_raises() -> None:
    """Those it or a private helper of it raises by name; and a coroutine, which mostly asks others, at least some."""
    calls = list(public.callables())
    assert len(calls) > 150
    silent = {
        call.path: missing
        for call in calls
        if (missing := [error for error in public.raised(call.function) if not public.is_named(error, call.text)])
    }
    assert not silent
    coroutines = [call for call in calls if "async" in call.function.labels]
    assert not [call.path for call in coroutines if not public.names_an_error(call.own)]


def test_no_public_type_is_any() -> None:
    checked = [
        (f"{path}.{where}", public.holds_any(kind))
        for path, name, found in public.objects()
        for where, kind in public.types_of(name, found)
    ]
    assert len(checked) > 600
    assert not [where for where, is_any in checked if is_any]
