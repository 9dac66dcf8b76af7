#!lua flags=allow-oom
-- move_end: a partition has been moved. Of one that is to be none any more nothing is left, unless
-- something lies in it that nobody could move.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 '1' where the partition is to be none any more · 2… the keys that go with it then, none to have a look alone
-- returns  how many tasks and dead letters are left that are in no list, for a partition to be none
if ARGV[1] ~= '1' then
  call('DEL', K.moved)
  return 0
end
local left = call('HLEN', K.tasks) + call('HLEN', K.history_new) + call('HLEN', K.history_old)
if left > 0 then return left end
if #ARGV > 1 then call('UNLINK', unpack(ARGV, 2)) end
return 0
