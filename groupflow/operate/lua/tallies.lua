#!lua flags=no-writes
-- tallies: what `tally` has kept, in no order, with intervals too old for the ring.
--
-- KEYS[1]  what all keys of the partition begin with
-- returns  { now (µs), tallies: the fields' values }
return named({ now = clock(), tallies = call('HVALS', K.tallies) })
