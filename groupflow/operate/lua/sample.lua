#!lua
-- sample: keep the totals of this interval, and add what this daemon measured. The first call in an
-- interval, of any daemon, writes the totals; all calls add their latencies. The hash is a ring:
-- a new interval takes the field of the one that has become too old.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 length of an interval (µs) · 2 how many are kept · 3 latencies of tasks that were done,
--          a JSON list of counts, one a bucket
-- returns  { now (µs), 1 where this call began the interval, else 0 }
local now = clock()
local number = math.floor(now / ARGV[1])
local field = tostring(number % tonumber(ARGV[2]))
local latencies = cjson.decode(ARGV[3])
local kept = call('HGET', K.samples, field)
if kept then
  kept = cjson.decode(kept)
  if math.floor(tonumber(kept[1]) / ARGV[1]) == number then
    local sums = kept[#kept]
    for i = 1, math.max(#latencies, #sums) do sums[i] = (sums[i] or 0) + (latencies[i] or 0) end
    call('HSET', K.samples, field, cjson.encode(kept))
    return { now, 0 }
  end
end
local count = call('HMGET', K.count, 'taken', 'done', 'buried', 'crashed', 'queued_plain',
  'queued_grouped', 'running_plain', 'running_grouped', 'asleep')
count[6] = (tonumber(count[6]) or 0) - (tonumber(count[9]) or 0)
local sample = { digits(now) } -- as text: a JSON number would lose its last digits
for i = 1, 8 do sample[#sample + 1] = tonumber(count[i]) or 0 end
sample[#sample + 1] = count_in(READY)
sample[#sample + 1] = call('ZCARD', K.held)
sample[#sample + 1] = call('ZCARD', K.dead)
sample[#sample + 1] = latencies
call('HSET', K.samples, field, cjson.encode(sample))
return { now, 1 }
