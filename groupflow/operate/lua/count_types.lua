#!lua
-- count_types: add what a daemon's handlers did to the current interval. The hash is a ring: a new interval takes
-- the field of the one that has become too old.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 length of an interval (µs) · 2 how many are kept · 3 a JSON object: busy and capacity (seconds of
--          workers), types: by name a list of counts
-- returns  1
local MOST = 100 -- types of an interval; further ones count as one
local number = math.floor(clock() / ARGV[1])
local field = tostring(number % tonumber(ARGV[2]))
local told = cjson.decode(ARGV[3])
local packed = call('HGET', K.tallies, field)
local kept = packed and cjson.decode(packed)
if not kept or kept.number ~= number then kept = { number = number, busy = 0, capacity = 0, types = {} } end
local known = 0
for _ in pairs(kept.types) do known = known + 1 end
kept.busy, kept.capacity = kept.busy + told.busy, kept.capacity + told.capacity
for name, counts in pairs(told.types) do
  if not kept.types[name] and known >= MOST then name = 'other' end
  local sums = kept.types[name]
  if not sums then
    sums, known = {}, known + 1
    kept.types[name] = sums
  end
  for i, count in ipairs(counts) do sums[i] = (sums[i] or 0) + count end
end
call('HSET', K.tallies, field, cjson.encode(kept))
return 1
