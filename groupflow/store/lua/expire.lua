#!lua flags=allow-oom
-- expire: tasks that had to start by now, and have not, end as expired. Their groups go on. A step begins with those that
-- were late first. In a lane it goes on from the old end to the young, and takes along what is late beside them, so that
-- a lane is walked few times.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many tasks at most · 2 how many places of lanes to pass by, or as much other work; a tenth more than
--          the first task needs, where that is more
-- returns  how many ended, also by claims since the last call
local now, most, room = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
-- In places of lanes, what takes as long: an end, placing a group, a search at most.
local END, GROUP, SEARCH = 1500, 1000, 8000
local PAGE = 16 -- places of a lane that are looked at together
local groups, number, ended_plain = {}, 0, 0

local function expire(entry, group, by)
  leave_burst(entry)
  end_as('expired', id_of(entry), group, digits(by), now)
  number, room = number + 1, room - END
  if group == '' then ended_plain = ended_plain + 1 else groups[group] = true end
end

-- Ends what is late in a lane as far as there is room: `wanted`, in order of arrival, and what it finds beside these.
local function expire_lane(group, wanted)
  local lane = K.lane .. group
  local length, head = call('LLEN', lane), call('LINDEX', lane, -1)
  local at, late, is_late = 0, {}, {}
  local from_old, from_young = 0, nil -- how far the two walks go that remove what is late

  local function has_room()
    local walks = 2 * at < length and at or from_old + (from_young or length - at)
    if number + #late == 0 then room = math.max(room, 1.1 * walks + PAGE * END) end
    return number + #late < most and walks + #late * END < room
  end

  -- Looks at the next page. Returns whether a quarter of it is late: then the next is worth a look.
  local function look()
    local page, ids, found = call('LRANGE', lane, -at - PAGE, -at - 1), {}, #late
    for i = 1, #page do ids[i] = id_of(page[i]) end
    local times = #ids > 0 and call('ZMSCORE', K.expiring, unpack(ids)) or {}
    for i = #page, 1, -1 do
      if times[i] and tonumber(times[i]) <= now and number + #late < most then
        late[#late + 1] = { entry = page[i], place = at + #page - i, by = times[i] }
        is_late[page[i]] = true
      end
    end
    if 2 * at < length then from_old = at + PAGE else from_young = from_young or length - at end
    at = at + PAGE
    return 4 * (#late - found) >= PAGE
  end

  local by = head and start_by(id_of(head))
  local goes_on = by and by <= now
  for _, entry in ipairs(wanted) do
    while goes_on and has_room() do goes_on = look() end
    if not is_late[entry] then
      local before = at
      at = count_older(lane, sequence_of(entry), at)
      room = room - math.min(at - before, SEARCH)
      if not has_room() then break end
      goes_on = look()
      if not is_late[entry] and number + #late < most then -- an operator has deleted keys
        call('ZREM', K.expiring, id_of(entry))
      end
    end
  end
  while goes_on and has_room() do goes_on = look() end

  local places = {}
  for i, each in ipairs(late) do places[i] = each.place end
  leave_lane(lane, places)
  room = room - GROUP - from_old - (from_young or 0)
  for _, each in ipairs(late) do expire(each.entry, group, each.by) end
end

local tasks, lanes, in_lanes = {}, {}, {}
local first = call('ZRANGEBYSCORE', K.expiring, '-inf', digits(now), 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #first, 2 do
  local known = call('HMGET', K.task_state .. first[i], 'sequence', 'group')
  tasks[#tasks + 1] = { entry = (known[1] or NEVER) .. '+' .. first[i], group = known[2] or '', by = first[i + 1] }
end
table.sort(tasks, function(a, b) return a.entry < b.entry end)
for _, task in ipairs(tasks) do
  local group = task.group
  if leave_zset(task.entry, group, now) then
    expire(task.entry, group, task.by)
  elseif group == '' then
    call('ZREM', K.expiring, id_of(task.entry))
  else
    if not in_lanes[group] then
      in_lanes[group], lanes[#lanes + 1] = {}, group
    end
    table.insert(in_lanes[group], task.entry)
  end
end
for _, group in ipairs(lanes) do
  if number > 0 and (room <= 0 or number >= most) then break end
  expire_lane(group, in_lanes[group])
end
for group in pairs(groups) do
  call('ZREM', K.held, group) -- its head may have been one of these
  if place(group, now) then wake_for(group) end
end
if ended_plain > 0 then call('HINCRBY', K.count, 'queued_plain', -ended_plain) end
if number > ended_plain then call('HINCRBY', K.count, 'queued_grouped', ended_plain - number) end
local unsaid = tonumber(call('HGET', K.count, 'expired_unsaid') or 0)
if unsaid > 0 then call('HDEL', K.count, 'expired_unsaid') end
return number + unsaid
