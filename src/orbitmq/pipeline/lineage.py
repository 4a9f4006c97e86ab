"""Reports start and end of a job to an OpenLineage receiver, with the package openlineage-python. Knows no job.

It is off unless the option `openlineage` or one of the package's own variables asks for it. A receiver that fails never
fails a job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orbitmq import __version__
from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.pipeline.datasets import Dataset, Lineage
from orbitmq.pipeline.job import Job, JobOptions, JobResult

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")  # either turns events on; the package has one to turn them off
NAMESPACE, DEFAULT_NAMESPACE = "OPENLINEAGE_NAMESPACE", "orbitmq"
MISSING = "needs the package openlineage-python: pip install 'orbitmq[openlineage]'"
PRODUCER = f"https://pypi.org/project/orbitmq/{__version__}"
TIMEOUT_SECONDS = 5.0
RETRIES = 1  # a job waits for a receiver that is down some ten seconds at its start, and again at its end
ERROR_MAX = 2000  # characters of an error

Warn = Callable[[str], object]
Finish = Callable[[JobResult], object]


@contextmanager
def reported(
    job: Job[JobOptions], options: JobOptions, warn: Warn, meaning: Callable[[str], str | None]
) -> Iterator[Finish]:
    """Report the run of a job while the body runs, which calls what this yields with the result of the job.

    `warn` is called once with a sentence when events do not arrive. `meaning` explains the text of an error, None if
    that is plain.
    ConfigurationError when the option `openlineage` is set, and its value is no URL or the package is missing.
    """
    events = None if options.dry_run else _events(job, options, warn)
    if events is None:
        yield _ignore
        return
    planned = _planned(job, options)
    results: list[JobResult] = []
    events.send("START", planned)
    try:
        yield results.append
    except KeyboardInterrupt:
        events.send("ABORT", planned)
        raise
    except BaseException as error:
        events.send("FAIL", planned, meaning(str(error)) or str(error) or type(error).__name__)
        raise
    result = results[0]
    failed = "; ".join(result.failed)
    events.send("FAIL" if failed else "COMPLETE", result.lineage or planned, failed)


def _ignore(_: JobResult) -> None:
    return None


def _planned(job: Job[JobOptions], options: JobOptions) -> Lineage:
    """The data that the options name. The job itself reports what is wrong with them."""
    try:
        return job.lineage(options)
    except OrbitMQError:
        return Lineage()


def _events(job: Job[JobOptions], options: JobOptions, warn: Warn) -> RunEvents | None:
    """None when events are off."""
    if not (options.openlineage or any(map(os.environ.get, VARIABLES))):
        return None
    try:
        client = _client(options.openlineage)
    except ImportError as error:
        if options.openlineage:
            raise ConfigurationError(f"option openlineage {MISSING}") from error
        warn(f"no lineage is reported, because OpenLineage {MISSING}")  # the variables may be meant for other programs
        return None
    except Exception as error:  # of the package, for its configuration: ValueError, KeyError, RuntimeError and others
        if options.openlineage:
            raise ConfigurationError(f"option openlineage: {error}") from error
        warn(f"no lineage is reported, because OpenLineage is not configured: {error}")
        return None
    return RunEvents(client, job.name, options.openlineage_job or job.name, warn)


def _client(url: str) -> OpenLineageClient:
    """A client for the URL, else for what the environment says."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    if not url:
        return OpenLineageClient()
    settings: dict[str, Any] = {"url": url, "timeout": TIMEOUT_SECONDS, "retry": {"total": RETRIES}}
    if endpoint := os.environ.get("OPENLINEAGE_ENDPOINT"):
        settings["endpoint"] = endpoint
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        settings["auth"] = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict(settings)))


class RunEvents:
    """The events of one run."""

    def __init__(self, client: OpenLineageClient, kind: str, name: str, warn: Warn) -> None:
        from openlineage.client.event_v2 import Job as LineageJob
        from openlineage.client.event_v2 import Run
        from openlineage.client.facet_v2 import job_type_job
        from openlineage.client.uuid import generate_new_uuid

        self._client = client
        self._warn = warn
        self._has_warned = False
        self._run_id = str(generate_new_uuid())
        self._run = Run
        namespace = os.environ.get(NAMESPACE) or DEFAULT_NAMESPACE
        type_ = job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="ORBITMQ", jobType=kind.upper(), producer=PRODUCER
        )
        self._job = LineageJob(namespace, name, {"jobType": type_})

    def send(self, state: str, data: Lineage, error: str = "") -> None:
        """Send an event. A failure is reported once, and never raised."""
        try:
            self._client.emit(self._event(state, data, error))
        except Exception as problem:  # of the network, the receiver or any transport of the package
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"OpenLineage does not take the events of this run, which goes on without: {problem}")

    def _event(self, state: str, data: Lineage, error: str) -> Any:
        from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, input_statistics_input_dataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset as written

        read_facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        written_facet = written.OutputStatisticsOutputDatasetFacet
        facets: dict[str, Any] = {}
        if error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=error[:ERROR_MAX], programmingLanguage="Python", producer=PRODUCER
            )
        return RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            eventType=RunState[state],
            run=self._run(self._run_id, facets),
            job=self._job,
            inputs=[
                InputDataset(one.namespace, one.name, inputFacets=_statistics("inputStatistics", read_facet, one))
                for one in data.inputs
            ],
            outputs=[
                OutputDataset(one.namespace, one.name, outputFacets=_statistics("outputStatistics", written_facet, one))
                for one in data.outputs
            ],
            producer=PRODUCER,
        )


def _statistics(name: str, facet: Callable[..., Any], data: Dataset) -> dict[str, Any]:
    """The counts of a dataset, if there are any."""
    counts = {"rowCount": data.rows, "size": data.size, "fileCount": data.files}
    known = {key: value for key, value in counts.items() if value is not None}
    return {name: facet(**known, producer=PRODUCER)} if known else {}
