#!lua flags=allow-oom
-- expire: tasks that had to start by now, and have not, end as expired. Their groups go on.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many tasks at most · 2 how many places of lanes to pass by, beside those of one task
-- returns  how many ended, also by claims since the last call
local now, room = clock(), tonumber(ARGV[2])
local late = call('ZRANGEBYSCORE', K.expiring, '-inf', digits(now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])

-- How many places of a lane have to be looked at to find an entry, and from which end, as LREM counts: from the old one
-- below 0. The lane is in order of arrival, and what expires mostly stands near its old end.
local function way_to(lane, entry)
  local length, sequence, reach = call('LLEN', lane), sequence_of(entry), 1
  while reach < length and sequence_of(call('LINDEX', lane, -reach)) < sequence do reach = reach * 2 end
  local from_old, from_young = math.min(reach, length), length - math.floor(reach / 2)
  if from_old <= from_young then return from_old, -1 end
  return from_young, 1
end

-- Takes a task out of where it waits. Returns whether it was there.
local function leave(entry, group)
  if leave_zset(entry, group, now) then return true end
  if group == '' then return false end
  local lane = K.lane .. group
  local places, from = way_to(lane, entry)
  room = room - places
  return call('LREM', lane, from, entry) == 1
end

local tasks, groups, ended = {}, {}, { plain = 0, grouped = 0 }
for i = 1, #late, 2 do
  local known = call('HMGET', K.task_state .. late[i], 'sequence', 'group')
  tasks[#tasks + 1] = { entry = (known[1] or NEVER) .. '+' .. late[i], group = known[2] or '', by = late[i + 1] }
end
table.sort(tasks, function(a, b) return a.entry < b.entry end) -- so each is the oldest of its lane when its turn comes
for _, task in ipairs(tasks) do
  if room < 0 then break end
  local id, group = id_of(task.entry), task.group
  call('ZREM', K.expiring, id)
  if leave(task.entry, group) then
    leave_burst(task.entry)
    end_as('expired', id, group, digits(task.by), now)
    local kind = group == '' and 'plain' or 'grouped'
    ended[kind] = ended[kind] + 1
    groups[group] = true
  end
end
groups[''] = nil
for group in pairs(groups) do
  call('ZREM', K.held, group) -- its head may have been one of these
  if place(group, now) then wake_for(group) end
end
for kind, number in pairs(ended) do
  if number > 0 then call('HINCRBY', K.count, 'queued_' .. kind, -number) end
end
local unsaid = tonumber(call('HGET', K.count, 'expired_unsaid') or 0)
if unsaid > 0 then call('HDEL', K.count, 'expired_unsaid') end
return ended.plain + ended.grouped + unsaid
