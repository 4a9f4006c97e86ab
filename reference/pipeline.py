"""The generated page of the jobs: what their tables of options declare. It must not state facts of its own."""

from __future__ import annotations

from orbitmq.runtime.options import Options, as_text

_HEAD = """\
# Jobs

Written by `make reference` from the tables in the code.

`orbitmq pipeline NAME` runs a job with Spark on this machine, or on the cluster that `--master` names. The same jobs
run by spark-submit with what `orbitmq pipeline pack FOLDER` writes: `spark-submit --py-files FOLDER/orbitmq.zip
FOLDER/orbitmq_pipeline.py NAME ...`; see [clusters](../spark-cluster.md).

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | some of the work failed; the closing table says what |
| 2 | wrong usage or configuration |
| 130 | interrupted |

Every job takes `-c FILE`, a properties file with options by their keys (`nameServer` for `-n` or `--name-server`); use
it for secrets. Flags override it. `-o json` prints the closing table as one JSON object. Further flags of every job:
"""


def pipeline_page() -> str:
    """Every job with its flags."""
    from orbitmq.pipeline.job import JOBS, JobOptions, job_named

    common = set(JobOptions.table())
    parts = [_HEAD, _flags(JobOptions, set())]
    for name, entry in JOBS.items():
        job = job_named(name)
        examples = "".join(f"orbitmq pipeline {name} {example}\n" for example in job.examples)
        text = " ".join(job.description.split())
        parts.append(f"\n## {name}\n\n{entry.summary} {text}\n\n```sh\n{examples}```\n{_flags(job.options, common)}")
    return "".join(parts)


def _flags(options: type[Options], without: set[str]) -> str:
    from orbitmq.pipeline.command import flag

    lines = ["| flag | default | allowed | description |", "|---|---|---|---|"]
    for key, (_, declared) in options.table().items():
        if key not in without:
            default = as_text(declared.default)
            allowed = f"{declared.allowed()} ({declared.unit})" if declared.unit else declared.allowed()
            cells = f"`{flag(key)}`", f"`{default}`" if default else "", allowed, declared.text
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n" + "\n".join(lines) + "\n"
