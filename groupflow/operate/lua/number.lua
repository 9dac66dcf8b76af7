#!lua flags=no-writes
-- number: how many partitions a namespace has, and the format of its keys. Runs with the keys of the namespace itself,
-- not of a partition.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     none
-- returns  { how many it has, 0 if it was never used, how many it is being moved to or 0, the format }
local known = call('HMGET', K.partitions, 'number', 'moving_to', 'format')
return { tonumber(known[1] or 0), tonumber(known[2] or 0), tonumber(known[3] or 0) }
