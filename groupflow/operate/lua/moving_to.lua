#!lua flags=allow-oom
-- moving_to: note that a namespace is being moved to another number of partitions, and that it was.
-- Runs with the keys of the namespace itself; 'mark' and 'end' also with those of each partition that it
-- has or had, so that a daemon that knows nothing of the move brings nothing there (`layout.lua`).
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'begin', 'mark', 'end', or 'cancel' · 2 the number of partitions it is to have · 3 for 'mark'
--          the number that it has
-- returns  { how many it has, 0 if it was never used, how many it is being moved to or 0 },
--          behind 'mark' also the id of the epoch
local known = call('HMGET', K.partitions, 'number', 'moving_to')
local number, moving_to = tonumber(known[1] or 0), tonumber(known[2] or 0)
if ARGV[1] == 'begin' then
  if number > 0 and moving_to == 0 and number ~= tonumber(ARGV[2]) then
    call('HSET', K.partitions, 'moving_to', ARGV[2])
    moving_to = tonumber(ARGV[2])
  end
elseif ARGV[1] == 'mark' then
  call('HSET', K.partitions, 'number', ARGV[3], 'moving_to', ARGV[2], 'format', FORMAT)
else
  if ARGV[1] == 'end' then call('HSET', K.partitions, 'number', ARGV[2], 'format', FORMAT) end
  call('HDEL', K.partitions, 'moving_to')
  call('DEL', K.moved)
end
return { number, moving_to, ARGV[1] == 'mark' and leader(info('replication')) or nil }
