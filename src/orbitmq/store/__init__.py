"""The store: everything a broker keeps on disk for its messages. Knows no network.

    files        the only door to the file system        numbered     endless streams cut into numbered files
    commit_log   every message, one after another        queue        20-byte entries that point into it
    dispatch     log to queues, for puts and recovery    recovery     what to believe after a start
    flushing     worker threads that sync                walk         units of a log file, one after another
    index_file   a hash table on disk, key to messages   index        the row of index files
    index_loops  what touches each key, for machine numbers
    index_proof  what to believe of one after a crash    key_scan     log to keys and their hashes
    indexing     log to index, beside the messages' way  key_search   messages by key: the index as the engine sees it
    arrivals     when readers may see a message          retention    which files have had their day
    cleaning     does what retention decides             disposal     frees removed files in small bites
    staging      the way through private memory          warming      files brought into memory before use
    reading      the batch rules of a pull               engine       the store as a broker sees it
    extended_queue  what a queue entry has no room for   multi_dispatch  further queues of a message
    reader       read-only access for tools and Spark    verify       is a directory sound: log_scan, queue_check,
    dump         messages as plain values                             index_check over pieces; findings are its words
    rebuild      queues and index anew from the log

A message is appended to the commit log and entered into its queue in one turn of the event loop; disks are waited
for, and keys are indexed, on worker threads only.
"""
