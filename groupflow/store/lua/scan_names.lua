#!lua flags=no-writes
-- scan_names: all scans of a namespace. Runs with the keys of the namespace itself.
--
-- KEYS[1]  what all keys of the partition begin with
-- returns  their names
return call('HKEYS', K.scans)
