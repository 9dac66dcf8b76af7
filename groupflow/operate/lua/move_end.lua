#!lua flags=allow-oom
-- move_end: end the move of a partition. If it is to be none any more, remove its keys, unless something
-- lies in it that could not be moved.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 '1' if the partition is to be none any more · 2… the keys to remove then, none to only look
-- returns  how many tasks, dead letters and history entries are left, if the partition is to be none; else 0
if ARGV[1] ~= '1' then
  call('DEL', K.moved)
  return 0
end
local left = call('HLEN', K.tasks) + call('HLEN', K.history_new) + call('HLEN', K.history_old)
if left > 0 then return left end
if #ARGV > 1 then call('UNLINK', unpack(ARGV, 2)) end
return 0
