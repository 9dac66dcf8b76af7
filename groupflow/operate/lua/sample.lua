#!lua
-- sample: keep the totals of this interval, add what this daemon measured, and move what scripts have counted of types
-- into the current intervals of its rings. The first call in an interval, of any daemon, writes the totals; all calls
-- add the rest. Each hash has rings: a new interval takes the field of the one that has become too old. Of the totals a
-- second ring covers a day by longer intervals: its fields begin with `d`, and each sample stands in an object, under `day`.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 a JSON object: times (of tasks that were done, lists of counts, one a bucket), busy and capacity (seconds of
--          workers) · 2 and on, three of each ring, the two of totals in front of those of types: what its fields begin
--          with, length of an interval (µs), how many are kept
-- returns  { now (µs), 1 where this call began an interval of the first ring, else 0 }
local MOST = 50 -- types of an interval; further ones count as one
local MOVED = 500 -- kinds that one call moves, about
local TOTALS = 12 -- columns of a sample in front of the lists of counts
local now, told, rings = clock(), cjson.decode(ARGV[1]), {}
for i = 2, #ARGV, 3 do
  rings[#rings + 1] = { name = ARGV[i], length = tonumber(ARGV[i + 1]), kept = tonumber(ARGV[i + 2]) }
end

-- The number of the current interval of a ring, and its field, with what that has of it, or of one that is over.
local function current(key, ring)
  local number = math.floor(now / ring.length)
  local field = ring.name .. number % ring.kept
  local packed = call('HGET', key, field)
  return number, field, packed and cjson.decode(packed)
end

local function add_to_ring(ring, tallied)
  local number, field, kept = current(K.tallies, ring)
  if not kept or kept.number ~= number then kept = { number = number, busy = 0, capacity = 0, types = {} } end
  local known = 0
  for _ in pairs(kept.types) do known = known + 1 end
  kept.busy, kept.capacity = kept.busy + told.busy, kept.capacity + told.capacity
  for kind, count in pairs(tallied) do
    local task_type = sub(kind, 4)
    if not kept.types[task_type] and known >= MOST then task_type = 'other' end
    local counts = kept.types[task_type]
    if not counts then
      counts, known = {}, known + 1
      kept.types[task_type] = counts
    end
    local how = sub(kind, 1, 3)
    counts[how] = (counts[how] or 0) + count
  end
  call('HSET', K.tallies, field, cjson.encode(kept))
end

local function keep_types()
  local found, tallied, kinds = call('HSCAN', K.tally, 0, 'COUNT', MOVED)[2], {}, {}
  for n = 1, #found, 2 do
    kinds[#kinds + 1], tallied[found[n]] = found[n], tonumber(found[n + 1])
  end
  if #kinds == 0 and told.capacity == 0 then return end
  for i = 3, #rings do add_to_ring(rings[i], tallied) end
  for n = 1, #kinds, 500 do call('HDEL', K.tally, unpack(kinds, n, math.min(n + 499, #kinds))) end
end

local function totals()
  local count = call('HMGET', K.count, 'taken', 'done', 'buried', 'crashed', 'queued_plain',
    'queued_grouped', 'running_plain', 'running_grouped', 'asleep')
  count[6] = (tonumber(count[6]) or 0) - (tonumber(count[9]) or 0)
  local sample = { digits(now) } -- as text: a JSON number would lose its last digits
  for i = 1, 8 do sample[#sample + 1] = tonumber(count[i]) or 0 end
  sample[#sample + 1] = count_in(READY)
  sample[#sample + 1] = call('ZCARD', K.held)
  sample[#sample + 1] = call('ZCARD', K.dead)
  return sample
end

-- Whether this call began the interval.
local function keep_totals(ring)
  local number, field, sample = current(K.samples, ring)
  if sample and ring.name == 'd' then sample = sample.day end
  local is_new = not sample or #sample ~= TOTALS + #told.times
    or math.floor(tonumber(sample[1]) / ring.length) ~= number
  if is_new then sample = totals() end
  for n, counts in ipairs(told.times) do
    local sums = sample[TOTALS + n]
    if sums then
      for i = 1, #counts do sums[i] = (sums[i] or 0) + counts[i] end
    else
      sample[TOTALS + n] = counts
    end
  end
  call('HSET', K.samples, field, cjson.encode(ring.name == 'd' and { day = sample } or sample))
  return is_new
end

keep_types()
keep_totals(rings[2])
return { now, keep_totals(rings[1]) and 1 or 0 }
