"""The key index: messages by key. Knows the commit log, neither consume queues nor requests.

file        a hash table on disk, key to messages   key_index   the row of index files
loops       the loops over each key, for Cython     shape       how many slots a file has
proof       what to trust of a file after a crash   recovery    which files together hold every key
key_scan    log bytes to keys and their hashes      log_keys    the same, read from the log in slices
indexer     a worker that follows the log           search      queries: the index as the engine sees it
"""
