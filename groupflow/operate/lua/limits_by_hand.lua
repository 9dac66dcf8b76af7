#!lua flags=no-writes
-- limits_by_hand: the limits by hand that hold, the first to end first.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many at most
-- returns  { at (now), total, rows of { 'g' and a group or 't' and a tenant's name, what `by_hand` has of it } }
local now, rows = clock(), {}
for _, whose in ipairs(call('ZRANGE', K.by_hand_ends, 0, ARGV[1] - 1)) do
  local text = call('HGET', K.by_hand, whose)
  if text and tonumber(sub(text, 1, 16)) > now then rows[#rows + 1] = { whose, text } end
end
return { now, call('HLEN', K.by_hand), rows }
