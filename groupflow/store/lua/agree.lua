#!lua flags=allow-oom
-- agree: note how many partitions a namespace has, and the format of its keys, unless that is known. Runs with the keys
-- of the namespace itself, not of a partition.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many the caller's configuration says
-- returns  { how many it has, how many it is being moved to or 0, the format }
local known = call('HMGET', K.partitions, 'number', 'moving_to', 'format')
if known[1] then return { tonumber(known[1]), tonumber(known[2] or 0), tonumber(known[3] or 0) } end
call('HSET', K.partitions, 'number', ARGV[1], 'format', FORMAT)
return { tonumber(ARGV[1]), 0, tonumber(FORMAT) }
