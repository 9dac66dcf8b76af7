#!lua flags=allow-oom
-- agree: note how many partitions a namespace has, unless that is known. A namespace written before that was ever noted
-- has one. Runs with the keys of the namespace itself, not of a partition.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many the caller's configuration says; 0 to ask only
-- returns  { how many it has, how many it is being moved to or 0 }
local known = call('HMGET', K.partitions, 'number', 'moving_to')
if known[1] then return { tonumber(known[1]), tonumber(known[2] or 0) } end
local number = tonumber(ARGV[1])
if call('EXISTS', K.fence, K.count) > 0 then number = 1 end
if ARGV[1] ~= '0' then call('HSET', K.partitions, 'number', number) end
return { number, 0 }
