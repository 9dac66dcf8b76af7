#!lua flags=no-writes
-- statistics: what `sample` has kept, in no order, with intervals too old for the ring.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'samples'; or 'tallies' · the fields wanted of it; or 'tally' · a ring of them: its name · length of an
--          interval (µs) · how many are kept
-- returns  { now (µs), the fields' values }; of 'tally' { now, the current interval's value, if any, what has come since
--          the last sample: a flat list of kind · how many }
local now = clock()
if ARGV[1] == 'samples' then return { now, call('HVALS', K.samples) } end
if ARGV[1] == 'tallies' then return { now, call('HMGET', K.tallies, unpack(ARGV, 2)) } end
local number = math.floor(now / ARGV[3])
return { now, { call('HGET', K.tallies, ARGV[2] .. number % ARGV[4]) or nil }, call('HGETALL', K.tally) }
