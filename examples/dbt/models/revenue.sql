{{ config(materialized="table") }}

select
    city,
    date_trunc('hour', stored_at) as hour,
    count(*) as orders,
    sum(total) as revenue
from {{ ref("orders") }}
group by all
