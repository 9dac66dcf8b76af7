#!lua flags=allow-oom
-- rotate: begin a new history segment and drop the oldest whole, once the newest is full or aged and the oldest has
-- outlived the dedup window. It is one deletion for any number of tasks.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 age at which the newest is closed, and that the oldest must have (µs) · 2 size at which
--          the newest is closed (entries)
-- returns  1 if a segment was begun, else 0
local now = clock()
local begun = call('HMGET', K.segments, 'begun', 'closed')
if not begun[1] then
  call('HSET', K.segments, 'begun', digits(now))
  return 0
end
local keep = tonumber(ARGV[1])
local size = call('HLEN', K.history_new)
local is_aged = now - tonumber(begun[1]) >= keep
if size == 0 and call('EXISTS', K.history_old) == 0 then
  if is_aged then call('HSET', K.segments, 'begun', digits(now)) end
  return 0
end
if not is_aged and size < tonumber(ARGV[2]) then return 0 end
-- An id in the old segment ended before the segment was closed; it must stay for the whole window.
if call('EXISTS', K.history_old) == 1 and now - tonumber(begun[2] or 0) < keep then return 0 end
call('UNLINK', K.history_old, K.results_old)
if size > 0 then call('RENAME', K.history_new, K.history_old) end
if call('EXISTS', K.results_new) == 1 then call('RENAME', K.results_new, K.results_old) end
call('HDEL', K.count, 'results_bytes')
call('HSET', K.segments, 'begun', digits(now), 'closed', digits(now))
return 1
