#!lua
-- sample: keep the totals of this interval, and add what this daemon measured. The first call in an
-- interval, of any daemon, writes the totals; all calls add their latencies. The hash is a ring:
-- a new interval takes the field of the one that has become too old. A second ring covers a day by longer
-- intervals: its fields begin with `d`, and each of its samples stands in an object, under `day`.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 length of an interval (µs) · 2 how many a ring keeps · 3 latencies of tasks that were done,
--          a JSON list of counts, one a bucket · 4 of how many intervals the second ring makes one
-- returns  { now (µs), 1 where this call began an interval of the first ring, else 0 }
local now, latencies = clock(), cjson.decode(ARGV[3])

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
local function keep(ring, length)
  local number = math.floor(now / length)
  local field = ring .. number % tonumber(ARGV[2])
  local kept = call('HGET', K.samples, field)
  local sample = kept and cjson.decode(kept)
  if kept and ring == 'd' then sample = sample.day end
  local is_new = not sample or math.floor(tonumber(sample[1]) / length) ~= number
  if is_new then
    sample = totals()
    sample[#sample + 1] = latencies
  else
    local sums = sample[#sample]
    for i = 1, math.max(#latencies, #sums) do sums[i] = (sums[i] or 0) + (latencies[i] or 0) end
  end
  call('HSET', K.samples, field, cjson.encode(ring == 'd' and { day = sample } or sample))
  return is_new
end

keep('d', ARGV[1] * ARGV[4])
return { now, keep('', tonumber(ARGV[1])) and 1 or 0 }
