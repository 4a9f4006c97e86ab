"""Commands in the language of the environment: every help in Chinese, uncut at 80 columns, errors with their remedies;
what programs read stays English.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from orbitmq.cli.texts import step
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import CHINESE, gettext, in_language
from orbitmq.runtime.wide_text import width
from orbitmq.schemas.model import Refusal
from supply import error_texts, texts
from tests.cli.test_main import HEAVY, MODULES_MAX

COLUMNS = 80
NOWHERE = "127.0.0.1:1"
CHINESE_TEXT = re.compile("[\u4e00-\u9fff]")
WALK = """
import json, os
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command
from orbitmq.cli import localization
from orbitmq.cli.main import app
from orbitmq.runtime.languages import of_environment, set_language

set_language(of_environment(os.environ))
helps = {}

def walk(command, context):
    helps[context.command_path] = command.get_help(context)
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and name not in ("pipeline", "mqadmin"):
                walk(below, Context(below, info_name=name, parent=context))

root = get_command(app)
localization.begin(root)
walk(root, Context(root, info_name="orbitmq"))
print(json.dumps(helps))
"""
JOBS = ("archive", "audit", "compact", "dlq", "migrate", "rebuild", "replay")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`orbitmq ARGUMENTS` in Chinese, unless the environment says otherwise."""
    chosen = {**os.environ, "LC_ALL": "zh_CN.UTF-8", "COLUMNS": str(COLUMNS), **environment}
    command = [sys.executable, "-m", "orbitmq", *arguments]
    return subprocess.run(command, env=chosen, capture_output=True, text=True, timeout=60, check=False)


@cache
def helps() -> dict[str, str]:
    """Command -> its help."""
    chosen = {**os.environ, "LC_ALL": "zh_CN.UTF-8", "COLUMNS": str(COLUMNS)}
    made = subprocess.run(
        [sys.executable, "-c", WALK], env=chosen, capture_output=True, text=True, timeout=120, check=True
    )
    found: dict[str, str] = json.loads(made.stdout)
    for job in JOBS:
        found[f"orbitmq pipeline {job}"] = run("pipeline", job, "--help").stdout
    return found


def _prose(text: str) -> list[str]:
    """The lines of a help without those of examples, which are to be copied, and of usage."""
    lines = re.sub(r"^用法：.*?\n\n", "", text, flags=re.DOTALL).splitlines()
    return [line for line in lines if not re.match(r"\s*(?:\$ )?(?:\w+=\S+ |source <\()?orbitmq ", line)]


def test_there_are_all_commands() -> None:
    assert len(helps()) > 120
    assert {"orbitmq up", "orbitmq topic create", "orbitmq broker config set"} <= helps().keys()


def test_every_help_is_chinese_and_fits_80_columns() -> None:
    cut = [
        (command, line)
        for command, text in helps().items()
        for line in _prose(text)
        if width(line) > COLUMNS and " " in line.strip()
    ]
    assert cut == []
    shortened = re.compile(r"(?<![A-Z\]])\.\.\.")  # not the name of a value that may be given again
    assert [command for command, text in helps().items() if shortened.search("\n".join(_prose(text)))] == []
    assert [command for command, text in helps().items() if not text.startswith("用法：")] == []


def test_no_sentence_of_a_help_is_english() -> None:
    """Four words in a row are a sentence; names of values are none."""
    english = re.compile(r"(?:\b[a-z']{2,} ){4}")
    left = [(command, line) for command, text in helps().items() for line in _prose(text) if english.search(line)]
    assert left == []


@pytest.mark.parametrize(
    ("environment", "begins"),
    [
        ({}, "用法："),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "用法："),
        ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, "Usage: "),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, "Usage: "),
    ],
)
def test_the_environment_chooses(environment: dict[str, str], begins: str) -> None:
    assert run("--help", **environment).stdout.startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topic", "create"], "错误：缺少参数 'TOPIC'。"),
        (["topic", "create", "Orders", "--queues", "x"], "错误：'--queues' 的值不合法：'x' 不是合法的 int。"),
        (["broker", "--portt", "1"], "错误：没有选项：--portt"),
        (["group", "why", "billing", "Orders"], "错误：多余的参数（Orders）"),
        (["msg", "find", "Orders", "order-1"], "错误：多余的参数（order-1）；请用 --topic 指定主题"),
    ],
)
def test_what_was_typed_wrong_is_said_in_chinese(arguments: list[str], error: str) -> None:
    made = run(*arguments)
    assert made.returncode == 2
    assert made.stderr.startswith("用法：")
    assert made.stderr.splitlines()[-1].startswith(error)


def test_an_error_and_its_remedy_are_chinese_and_json_is_not() -> None:
    made = run("topic", "list", "-n", NOWHERE)
    assert made.returncode == 5
    assert "没有 NameServer 应答（无法连接 127.0.0.1:1：连接被拒绝）" in made.stderr
    assert "请用 -n HOST:PORT（端口通常为 9876）、NAMESRV_ADDR 或上下文设置；`orbitmq up` 可以启动一个" in made.stderr
    document = run("topic", "list", "-n", NOWHERE, "-o", "json").stdout
    assert not CHINESE_TEXT.search(document)
    assert json.loads(document)["errors"][0]["message"].startswith("no name server responds")


def test_a_daemon_logs_in_english_and_refuses_its_configuration_in_chinese() -> None:
    made = run("broker", "--set", "listenPort=many")
    assert made.returncode == 2
    assert "配置项 listenPort：不允许值 'many'；请使用" in made.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "create", "--help"], ["--version"]])
def test_chinese_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom orbitmq.cli.main import main\n"
        f"sys.argv = ['orbitmq', *{arguments}]\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    environment = {**os.environ, "LC_ALL": "zh_CN.UTF-8"}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    loaded = made.stderr.split()
    assert len(loaded) < MODULES_MAX
    assert not set(HEAVY) & set(loaded)


def test_what_a_step_does_is_chinese_on_a_terminal() -> None:
    item = {
        "outcome": "planned", "target": "broker-a (127.0.0.1:10911)", "action": "deliver as retries",
        "subject": "1,000 of queue 0 from offset 40", "before": None, "after": None,
    }  # fmt: skip
    with in_language(CHINESE):
        shown = step(item, COLUMNS)
    words = "已计划 broker-a (127.0.0.1:10911): 作为重试消息投递 队列 0 中从位点 40 起的 1,000 条"
    assert shown.split() == words.split()


def test_every_action_of_a_step_has_a_translation() -> None:
    """So that no plan is half English: `Step("…", action, …)`."""
    found = {text for _, _, text in error_texts.templates(texts.PACKAGE)}
    assert {"create topic", "delete group", "set maintenance", "deliver as retries", "set offset"} <= found
    with in_language(CHINESE):
        assert CHINESE_TEXT.search(translated("skip 7 messages"))
        assert CHINESE_TEXT.search(gettext("recall"))


def test_parts_of_a_text_that_conditions_choose_make_whole_templates() -> None:
    """`"consumed by {group} " + ("with retry {retry}" if retry else "when it came again")`."""
    for text in ("consumed by g with retry 3", "consumed by g when it came again", "retry 2 of g waits to be consumed"):
        with in_language(CHINESE):
            assert not re.search("[a-z]{2}", translated(text)), text


def test_every_error_is_recognised_by_its_text() -> None:
    """With values in it that no other template has, an error gets its own translation."""
    wrong = []
    for message in texts.catalogue(texts.catalogues()[0]):
        if message.context == "error":
            names = re.findall(r"(?<!\{)\{(\w+)\}(?!\})", str(message.id))
            values = {name: f"v{number}" for number, name in enumerate(dict.fromkeys(names))}
            values |= {name: "7" for name in names if name == "n"}  # a number
            values |= {name: f", {values[name]}" for name in re.findall(r"\}\{(\w+)\}", str(message.id))}
            with in_language(CHINESE):
                made = translated(str(message.id).format_map(values))
            if made != str(message.string).format_map(values).strip():
                wrong.append((message.id, made))
    assert wrong == []


@pytest.mark.parametrize(
    ("field", "rule", "chinese"),
    [
        ("id", "is string, and was int", "版本 3：字段 id 现在是 string，之前是 int"),
        ("n", "is new and has no default", "版本 3：字段 n 是新增的，而且没有默认值"),
        ("", "is json, and was avro", "版本 3：消息体 现在是 json，之前是 avro"),
        (
            "a.b", "is int, and was long, for consumers with the earlier version",
            "版本 3：字段 a.b 现在是 int，之前是 long（对使用较早版本的消费者而言）",
        ),
    ],
)  # fmt: skip
def test_why_a_schema_is_refused_is_told_in_chinese(field: str, rule: str, chinese: str) -> None:
    refusal = Refusal(3, field, rule)
    with in_language(CHINESE):
        assert translated(f"the schema is not full compatible with those of topic T: {refusal}; {refusal}") == (
            f"该 schema 与主题 T 已有的不满足 full 兼容：{chinese}；{chinese}"
        )


def test_flags_that_several_commands_share_are_refused_in_chinese() -> None:
    printed = run("msg", "query", "T", "--body", "rot13", "-n", NOWHERE).stderr
    assert "--body rot13：请使用 none，或 auto, text, json, hex, base64 之一" in printed


def test_a_file_that_is_not_there_is_named_once() -> None:
    printed = run("schema", "check", "T", "/no/order.avsc", "-n", NOWHERE).stderr
    assert "/no/order.avsc：没有这个文件或目录" in printed
    assert printed.count("order.avsc") == 1
