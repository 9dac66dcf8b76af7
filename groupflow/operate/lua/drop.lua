#!lua flags=allow-oom
-- drop: remove a dead letter for good. A park that its death laid on its group is lifted.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 its line for the history
-- returns  1, or 0 if there is no such dead letter
if not call('ZSCORE', K.dead, ARGV[1]) then return 0 end
forget(ARGV[1], ARGV[2], clock())
return 1
