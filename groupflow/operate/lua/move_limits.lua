#!lua flags=allow-oom
-- move_limits: move limits by hand with their groups; those of tenants hold in all partitions.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'out'
--          or 1 'in' · then two each: 'g' and a group or 't' and a tenant's name · what 'out' said of it
--          or 1 'done' · then the groups to remove, each with 'g' in front
-- returns  of 'out': such pairs; else nothing
if ARGV[1] == 'out' then return call('HGETALL', K.by_hand) end
if ARGV[1] == 'in' then
  for i = 2, #ARGV, 2 do
    local known = call('HGET', K.by_hand, ARGV[i])
    if not known or sub(known, 1, 16) < sub(ARGV[i + 1], 1, 16) then begin_by_hand(ARGV[i], ARGV[i + 1], clock()) end
  end
  return
end
for i = 2, #ARGV do
  call('HDEL', K.by_hand, ARGV[i])
  call('ZREM', K.by_hand_ends, ARGV[i])
end
