"""The functions for Spark programs: register the data sources, ship orbitmq to the executors, create a view."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

import orbitmq
from orbitmq.errors import SourceError
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.lake.options import lake_options
from orbitmq.spark.lake.source import LakeSource
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_tasks import cluster_of
from orbitmq.spark.source import TopicSource
from orbitmq.spark.stores.source import StoreSource
from orbitmq.spark.versions import HAS_SOURCES, DataSource, lacking, read_batch, register_sources, write_batch

SOURCES = (TopicSource, StoreSource, LakeSource)
WORKER_PACKAGES = ("pyspark", "pyarrow", "numpy", "msgspec")  # imports of a task besides orbitmq
PACKED = (".py", ".html")  # sources, and templates of jobs
PYTHON_PATH = "PYTHONPATH"
VERSION = re.compile(r"\d+\.\d+")
TABLES_MAX = 1000  # Spark plans each view when it is made, a tenth of a second or so
CHECK_TIMEOUT_S = 60  # the first import of pyarrow from a cold disk takes several seconds


def register(spark: SparkSession) -> None:
    """Register `format("orbitmq")`, `format("orbitmq-store")` and `format("orbitmq-lake")` with the session.

    Not needed where orbitmq is installed for the workers' Python: Spark finds `pyspark_orbitmq` there by itself.
    SourceError ORBITMQ_WORKER_PYTHON when the workers' Python on the driver does not run, or lacks a package;
    ORBITMQ_SPARK_VERSION for Spark 3.5, which has no Python data sources: use `read_topics`, `read_store` and
    `write_topics` there.
    """
    if not HAS_SOURCES:
        remedy = "use orbitmq.spark.read_topics, read_store and write_topics, which need no data source"
        raise lacking("a Python data source", "4.0", remedy)
    prepare(spark, *SOURCES)


def prepare(spark: SparkSession, *kinds: type[DataSource]) -> None:
    """Check the session, and register data sources if this version of Spark has them."""
    if not is_remote():
        check_worker_python(spark.sparkContext.pythonExec)
        if (origin := Path(orbitmq.__file__).parents[1]).is_file():  # the archive that spark-submit was given
            _show_to_planners(spark, origin)
    register_sources(spark, *kinds)


def read_topics(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """Read topics as a batch, with any version of Spark: `read_topics(spark, nameServer="...", subscribe="orders")`.

    The options are those of `format("orbitmq")`. With Spark 3.5 the read is planned by this call, and later queries of
    the DataFrame read the same offsets. SourceError as for `register`, for invalid options, and for a plan that fails.
    """
    prepare(spark, TopicSource)
    return read_batch(spark, TopicSource, _texts(options))


def read_store(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """Read a store directory as a batch, with any version of Spark: `read_store(spark, path="/data/store")`.

    The options are those of `format("orbitmq-store")`; else like `read_topics`.
    """
    prepare(spark, StoreSource)
    return read_batch(spark, StoreSource, _texts(options))


def write_topics(frame: DataFrame, **options: str | int | bool) -> None:
    """Write a DataFrame into topics, with any version of Spark: `write_topics(frame, nameServer="...", topic="copy")`.

    The options are those of `frame.write.format("orbitmq")`. Returns when all messages are stored. SourceError for
    invalid options and columns; an error of Spark, with its text, when a task fails.
    """
    prepare(frame.sparkSession, TopicSource)
    write_batch(frame, TopicSource, _texts(options))


@cache  # called by a job before it starts Spark, and again by `register`
def check_worker_python(python: str) -> None:
    """Check the Python of the workers. Spark plans reads with PYSPARK_PYTHON, by default `python3`, whatever Python the
    driver runs in. Without the packages this ends in an obscure stack trace.

    SourceError ORBITMQ_WORKER_PYTHON when it is not Python, has another version, or lacks a package.
    """
    if shutil.which(python) == sys.executable:
        return
    hint = f"set the environment variable PYSPARK_PYTHON={sys.executable} before the session starts"
    program = f"import sys, {', '.join(WORKER_PACKAGES)}; print('%d.%d' % sys.version_info[:2])"
    try:
        tried = subprocess.run(  # noqa: S603 - the command is the Python this session is set to
            [python, "-c", program], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError("ORBITMQ_WORKER_PYTHON", f"Spark's workers cannot run: {error}; {hint}") from error
    if wrong := _wrong_with(tried):
        raise SourceError("ORBITMQ_WORKER_PYTHON", f"the Python of Spark's workers, {python}, {wrong}; {hint}")


def _wrong_with(tried: subprocess.CompletedProcess[str]) -> str:
    own, told = "{}.{}".format(*sys.version_info), _last_line(tried.stdout)
    if tried.returncode:
        return f"fails: {_last_line(tried.stderr)}"
    if not VERSION.fullmatch(told):
        return "is not a Python interpreter"
    return "" if told == own else f"has version {told}, but the driver has {own}"


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def create_view(spark: SparkSession, name: str, **options: str | int | bool) -> DataFrame:
    """Create a SQL view of a topic: `create_view(spark, "orders", nameServer="...", subscribe="orders")`.

    The view lasts as long as the session, and each query reads the topic again. Returns the DataFrame of the view.
    SourceError for the option filterPushdown, which needs a DataFrame for each query.
    """
    frame = _frame(spark, TopicSource, options)
    frame.createOrReplaceTempView(name)
    return frame


def tables(
    spark: SparkSession,
    pattern: str = ".*",
    *,
    lake: str = "",
    prefix: str = "",
    shared: bool = False,
    **options: str | int | bool,
) -> list[str]:
    """Create a SQL view of each topic that exists now and matches `pattern`, a regular expression: `tables(spark,
    "order.*", nameServer="...")`. With `lake`, its folder or URI, of each topic in the lake: `tables(spark,
    lake="./lake", prefix="archived_")`. Returns the names of the views, which are those of the topics behind the
    prefix; in SQL a name with other characters than letters, digits and `_` needs backquotes.

    `options` are those of a read, the same for all. With `shared` the views are for all sessions of the application,
    such as those of a Thrift server: `SELECT * FROM global_temp.orders`. Topics for internal use are left out unless
    `includeSystemTopics` is set, or they are archived. This process asks the name server or opens the lake, also with
    Spark Connect.

    SourceError ORBITMQ_TOPIC_NOT_FOUND when no topic matches; ORBITMQ_BAD_OPTION when names differ in nothing but case,
    which Spark does not look at, or more than TABLES_MAX match; ORBITMQ_LAKE_UNREADABLE without such a lake.
    """
    texts = _texts(options)
    topics = _archived_topics(lake, pattern, texts) if lake else _topics(pattern, texts)
    _check_tables(topics, pattern)
    for topic in topics:
        if lake:
            frame = _frame(spark, LakeSource, {**options, "path": lake, "topics": topic})
        else:
            frame = _frame(spark, TopicSource, {**options, "subscribe": topic})
        view = f"`{prefix}{topic}`"
        if shared:
            frame.createOrReplaceGlobalTempView(view)
        else:
            frame.createOrReplaceTempView(view)
    return [prefix + topic for topic in topics]


def _topics(pattern: str, options: Mapping[str, str]) -> list[str]:
    read = read_options({**options, "subscribePattern": pattern})
    return sorted(read.names.unwrap(topic) for topic in queue_selection(read).matching(cluster_of(read)))


def _archived_topics(lake: str, pattern: str, options: Mapping[str, str]) -> list[str]:
    files = lake_options({**options, "path": lake}).snapshot().files
    try:
        return sorted({file.topic for file in files if file.topic and re.fullmatch(pattern, file.topic)})
    except re.error as error:
        raise bad_option(f"the pattern {pattern!r} of topics: {error}") from error


def _check_tables(topics: Sequence[str], pattern: str) -> None:
    if not topics:
        raise SourceError("ORBITMQ_TOPIC_NOT_FOUND", f"no topic matches {pattern!r}")
    if len(topics) > TABLES_MAX:
        raise bad_option(f"{len(topics)} topics match {pattern!r}, more than {TABLES_MAX}; use a narrower pattern")
    for name, others in groupby(sorted(topics, key=str.lower), str.lower):
        same = list(others)
        if len(same) > 1:
            raise bad_option(f"the topics {', '.join(same)} would be one view {name} of Spark; use a narrower pattern")


def _frame(spark: SparkSession, kind: type[DataSource], options: Mapping[str, str | int | bool]) -> DataFrame:
    if any(name.lower() == "filterpushdown" and str(value).lower() != "false" for name, value in options.items()):
        raise bad_option(
            "option filterPushdown: Spark would apply the conditions of one query of a view to all others; use load() "
            "for each query instead"
        )
    return read_batch(spark, kind, _texts(options))


def _texts(options: Mapping[str, str | int | bool]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def ship(spark: SparkSession) -> Path:
    """Ship the orbitmq of this process to executors that do not have it.

    They still need the packages of WORKER_PACKAGES, and lz4 or zstandard for bodies compressed with these.
    Returns the archive, which is removed when this process ends.
    """
    archive = _archive()
    if is_remote():
        spark.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))
        _show_to_planners(spark, archive)
    return archive


@cache
def _archive() -> Path:
    """One for each process: Spark rejects a second file of the same name."""
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pack(folder / f"orbitmq-{orbitmq.__version__}.zip")


def _show_to_planners(spark: SparkSession, archive: Path) -> None:
    """Let the Python that plans streams on the driver import from the archive.

    Spark 4.3 searches shipped files there in a directory that it never fills, but PYTHONPATH is read everywhere.
    Executors have no file of that name, and ignore it.
    """
    environment = spark.sparkContext.environment
    paths = environment.get(PYTHON_PATH, "").split(os.pathsep)
    if str(archive) not in paths:
        environment[PYTHON_PATH] = os.pathsep.join(filter(None, [str(archive), *paths]))


def pack(archive: Path) -> Path:
    """Write the sources of the orbitmq package into a zip file that Python can import from."""
    package = Path(orbitmq.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for source in sorted(path for path in package.rglob("*") if path.suffix in PACKED):
            zip_file.write(source, source.relative_to(package.parent))
    return archive
