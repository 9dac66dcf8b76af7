#!lua flags=allow-oom
-- moving_to: note that a namespace is being moved to another number of partitions, and that it was.
-- Runs with the keys of the namespace itself, not of a partition.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 'begin', 'end', or 'cancel' · 2 the number of partitions it is to have
-- returns  { how many it has, 0 where nobody has ever used it, how many it is being moved to or 0 }
local known = call('HMGET', K.partitions, 'number', 'moving_to')
local number, moving_to = tonumber(known[1] or nil) or 0, tonumber(known[2] or nil) or 0
if number == 0 and call('EXISTS', K.fence, K.count) > 0 then number = 1 end
if ARGV[1] == 'begin' then
  if number > 0 and moving_to == 0 and number ~= tonumber(ARGV[2]) then
    call('HSET', K.partitions, 'number', number, 'moving_to', ARGV[2])
    moving_to = tonumber(ARGV[2])
  end
elseif ARGV[1] == 'end' then
  call('HSET', K.partitions, 'number', ARGV[2])
  call('HDEL', K.partitions, 'moving_to')
else
  call('HDEL', K.partitions, 'moving_to')
end
return { number, moving_to }
