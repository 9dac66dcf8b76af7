#!lua flags=no-writes
-- samples: what `sample` has kept, in no order, with samples too old for the ring.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     none
-- returns  { now (µs), samples: the hash as a flat list }
return named({ now = clock(), samples = call('HGETALL', K.samples) })
