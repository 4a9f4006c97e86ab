"""The store: everything a broker keeps on disk for its messages. Knows no network.

    files        all access to the file system           numbered     endless streams cut into numbered files
    commit_log   every message, one after another        queue        20-byte entries that point into it
    dispatch     log to queues, for puts and recovery    recovery     what to trust after a start
    flusher      worker threads that sync                walk         units of a log file, one after another
    arrivals     when readers may see a message          retention    which files may be removed
    cleaner      removes them                            disposal     frees removed files in small steps
    transient_pool  writes through private memory        warmer       brings files into memory before use
    pull_batch   which messages a pull gets              engine       the store as a broker sees it
    extended_queue  what a queue entry has no room for   multi_dispatch  further queues of a message
    reader       read-only access for tools and Spark    time_search  offsets by time
    index/       the key index                           tools/       verify, dump and rebuild a directory

A message is appended to the commit log and entered into its queue in one turn of the event loop; disks are waited
for, and keys are indexed, on worker threads only.
"""
