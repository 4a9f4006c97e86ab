"""Keeps a lake with Airflow 3: archives what is new every hour, puts small files together, and audits the last day.

Copy this file into the folder of your DAGs. It runs the program `orbitmq`, which may be in an environment of its own.
These variables of Airflow say what it works on; the first two are required:

    orbitmq_name_server   addresses of the name servers, host:port;host:port
    orbitmq_lake          folder or URI of the lake; all workers must see the same
    orbitmq_topics        topics to archive, separated by commas, with * for any characters; default: *
    orbitmq_audit         folder or URI for the report; default: `_audit` in the lake
    orbitmq_program       path of orbitmq; default: the one on the PATH of the worker
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, chain

# Bash gets the values in its environment, so that none of them is read as a command.
SETTINGS = {
    "ORBITMQ": "{{ var.value.get('orbitmq_program', 'orbitmq') }}",
    "NAME_SERVER": "{{ var.value.orbitmq_name_server }}",
    "LAKE": "{{ var.value.orbitmq_lake }}",
    "TOPICS": "{{ var.value.get('orbitmq_topics', '*') }}",
    "AUDIT": "{{ var.value.get('orbitmq_audit', var.value.orbitmq_lake ~ '/_audit') }}",
    "A_DAY_AGO_MS": "{{ ((dag_run.run_after.timestamp() - 86400) * 1000) | int }}",
}


def job(name: str, flags: str, retries: int = 2) -> BashOperator:
    """A job of `orbitmq pipeline`. Its counts, one line of JSON, become the task's XCom."""
    return BashOperator(
        task_id=name,
        bash_command=f'exec "$ORBITMQ" pipeline {name} {flags} -o json',
        env=SETTINGS,
        append_env=True,
        retries=retries,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(hours=1),  # it is told to end, and the next run goes on where it was
    )


with DAG(
    "orbitmq_lake",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run archives all there is, whatever hour it is for
    max_active_runs=1,  # two archives of one lake would share its checkpoint
    tags=["orbitmq"],
) as dag:
    chain(
        job("archive", '--name-server "$NAME_SERVER" --topics "$TOPICS" --lake "$LAKE"'),
        job("compact", '--lake "$LAKE"'),
        # Fails if it finds lost, duplicate or damaged messages. They would be there again in five minutes.
        job("audit", '--input lake --lake "$LAKE" --from "$A_DAY_AGO_MS" --out "$AUDIT"', retries=0),
    )
