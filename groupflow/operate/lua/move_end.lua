#!lua flags=allow-oom
-- move_end: a partition has been moved. Of one that is to be none any more nothing is left, unless
-- something lies in it that nobody could move.
--
-- KEYS[1]  any key of the partition
-- ARGV     1 '1' where the partition is to be none any more
-- returns  how many tasks and dead letters are left that are in no list, for a partition to be none
if ARGV[1] ~= '1' then
  call('DEL', K.moved)
  return 0
end
local left = call('HLEN', K.tasks) + call('HLEN', K.history_new) + call('HLEN', K.history_old)
if left > 0 then return left end
for name, key in pairs(K) do
  local is_one = sub(key, -1) ~= ':' and name ~= 'wake' and name ~= 'never'
  if is_one and name ~= 'partitions' and name ~= 'scans' then call('UNLINK', key) end
end
return 0
