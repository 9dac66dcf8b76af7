#!lua flags=no-writes
-- scan_names: all scans of a namespace. Runs with the keys of the namespace itself.
--
-- KEYS[1]  any key of the namespace
-- returns  their names
return call('HKEYS', K.scans)
