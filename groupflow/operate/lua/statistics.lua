#!lua flags=no-writes
-- statistics: what `sample` or `count_types` has kept, in no order, with intervals too old for the ring.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'samples' or 'tallies'
-- returns  { now (µs), the fields' values }
return { clock(), call('HVALS', TAG .. ARGV[1]) }
