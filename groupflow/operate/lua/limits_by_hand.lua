#!lua flags=no-writes
-- limits_by_hand: the limits by hand that hold, the first to end first.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many at most
-- returns  rows of { 'g' and a group, 't' and a tenant's name, or 'y' and a pattern of types; what
--          `by_hand` has of it }
local rows = {}
local hold = call('ZRANGE', K.by_hand_ends, '(' .. digits(clock()), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1])
for _, whose in ipairs(hold) do
  local text = call('HGET', K.by_hand, whose)
  if text then rows[#rows + 1] = { whose, text } end
end
return rows
