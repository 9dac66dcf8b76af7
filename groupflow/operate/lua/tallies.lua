#!lua flags=no-writes
-- tallies: what `tally` has kept, in no order; what is too old for the ring is among it.
--
-- KEYS[1]  any key of the namespace
-- returns  { now (µs), tallies: the fields' values }
return named({ now = clock(), tallies = call('HVALS', K.tallies) })
