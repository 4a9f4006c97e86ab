-- A run replaces what it reads. It reads the last days again: what a broker holds that was down comes late.
{{ config(materialized="incremental", unique_key=["broker", "queue_id", "queue_offset"]) }}

select
    value.id as id,
    value.city as city,
    value.total as total,
    storeTimestamp as stored_at,
    dt as day,
    brokerName as broker,
    queueId as queue_id,
    queueOffset as queue_offset,
    _rescued as rescued
from {{ source("lake", "messages") }}
where topic = '{{ var("topic") }}'
{% if is_incremental() %}
    and dt >= (select coalesce(max(day) - {{ var("days_again") }}, date '1970-01-01') from {{ this }})
{% endif %}
