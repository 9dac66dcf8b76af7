#!lua flags=no-writes
-- number: how many partitions a namespace has. One that was used before the number was noted has
-- one. Runs with the keys of the namespace itself, not of a partition.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     none
-- returns  { how many it has, 0 if it was never used, how many it is being moved to or 0 }
local known = call('HMGET', K.partitions, 'number', 'moving_to')
local number = tonumber(known[1] or nil) or call('EXISTS', K.fence, K.count) > 0 and 1 or 0
return { number, tonumber(known[2] or nil) or 0 }
