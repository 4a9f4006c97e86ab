"""The job `audit`: backlogs, late, lost and duplicate messages of a cluster, a store or a lake."""
