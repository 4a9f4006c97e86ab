"""The job `audit`: what is wrong, late or crowded in a cluster, a store or a lake, as tables and a page with charts."""
