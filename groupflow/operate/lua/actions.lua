#!lua flags=no-writes
-- actions: what operators did, the latest first.
--
-- KEYS[1]  what all keys begin with that the partitions share
-- ARGV     1 how many at most
-- returns  the notes of `note_action`, each followed by when (µs)
return call('ZRANGE', K.actions, 0, ARGV[1] - 1, 'REV', 'WITHSCORES')
