#!lua flags=allow-oom
-- move_counters: raise fence and arrival to the highest of all partitions.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the highest fence · 2 the highest arrival (µs)
-- returns  nothing
local behind = tonumber(ARGV[1]) - tonumber(call('GET', K.fence) or 0)
if behind > 0 then call('INCRBY', K.fence, behind) end
if tonumber(ARGV[2]) > tonumber(call('HGET', K.count, 'arrival') or 0) then
  call('HSET', K.count, 'arrival', digits(ARGV[2]))
end
