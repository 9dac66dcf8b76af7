#!lua flags=allow-oom
-- proceed: the first tasks of a run are done, and it goes on with the next one, or ends. Its slot has begun
-- that one already, so nothing here may stop it: the rest of a run is its own, under its group's lock, though it
-- stands in the lane, until the run ends, or its session.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 'wake' where the caller claims for fewer slots right behind it, and others
--          have to hear that a group is free · then for each run: slot · group · fence (16 digits) and element
--          of the next task, '' each where it ends · how many more it may have, how many it has behind that one,
--          and the element of the last of all of these · how many are done · three of each of those, in order:
--          fence (16 digits) · element · its line for the history. 500 tasks at most, but for the last run
-- returns  { state, a verdict a run: 0 (it is lost), 1 (accepted, also a repeat), 2 (the same, and it should end
--          soon: somebody paused or limited the group, or an older task stands in front of its next one); a fence that
--          nobody has, so that this server is known to have lost writes if it knows a smaller one, or 0; two a
--          run that has more now, its place (from 1), and what it has more: a fence, then element and envelope
--          of each in turn; now (µs) }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, 0, {}, 0 } end
local now = clock()
local at, verdicts, freed, lines, ended, goes_on = digits(now), {}, {}, {}, {}, false
local begun, further, room = 0, {}, TOLD

-- Takes elements out of a lane: nearly always its next ones, in that order. Returns what was not in it, as a set.
local function take_out(lane, elements)
  local missing, popped = {}, call('RPOP', lane, #elements) or {}
  local is_same = #popped == #elements
  for i = 1, #popped do is_same = is_same and popped[i] == elements[i] end
  if is_same then return missing, #elements end
  for i = #popped, 1, -1 do call('RPUSH', lane, popped[i]) end
  local taken = 0
  for _, element in ipairs(elements) do
    if call('LREM', lane, -1, element) == 1 then taken = taken + 1 else missing[element] = true end
  end
  return missing, taken
end

-- Which of the fences is the next to be settled; one behind the last where all are; nil where the run is lost.
local function place_in(checkpoint, fences, following)
  if not checkpoint then return nil end
  if byte(checkpoint) == LIVE then
    local fence = sub(checkpoint, 2, 17)
    for i = 1, #fences do
      if fences[i] == fence then return i end
    end
    if fence == following then return #fences + 1 end
  end
  return settled_before(checkpoint) == fences[#fences] and following == '' and #fences + 1 or nil
end

-- Whether a run may have what stands behind it in its lane, as nobody waits for anything.
local may_go_further
local function goes_further()
  if may_go_further == nil then may_go_further = not is_beside_others() end
  return may_go_further
end

-- What stands behind a run is its own, too. Whoever didn't hear of it names the same last task again. Where that
-- isn't where it stood, somebody came between.
local function lengthen(group, last, has, more)
  if has > 0 and call('LINDEX', K.lane .. group, -has) ~= last then return nil end
  local found = next_in_lane(group, has, more, function() return true end)
  if #found == 0 or arrival_of(found[1]) < arrival_of(last) then return nil end
  reach(group, found)
  return found
end

local function settle(slot, group, following, next_one, fences, elements, told)
  local first = place_in(call('HGET', K.worker .. daemon, slot), fences, following)
  if not first then return 0 end
  local lane, last = K.lane .. group, #fences
  if first <= last then
    local leaving = {}
    for i = first + 1, last do leaving[#leaving + 1] = elements[i] end
    if following ~= '' then leaving[#leaving + 1] = next_one end
    local missing, taken = {}, 0
    if #leaving > 0 then missing, taken = take_out(lane, leaving) end
    begun = begun + taken
    if is_limiting() then tenants().run_on(fences[first], taken, now) end
    for i = first, last do
      if not missing[elements[i]] then -- else somebody dropped it behind our back
        ended[#ended + 1] = id_of(elements[i])
        lines[#lines + 1], lines[#lines + 2] = id_of(elements[i]), at .. told[i]
        if has_life(elements[i]) then end_life(id_of(elements[i])) end
      end
    end
    local settled = 'S' .. fences[last]
    if following ~= '' then
      if is_limiting() then tenants().recharge(fences[first], following) end
      call('SET', K.lock .. group, following .. ' ' .. daemon .. ' ' .. slot)
      call('HSET', K.worker .. daemon, slot, live(following, settled, at, next_one, group))
    else
      unlock(group, fences[first], now)
      call('HDEL', K.runs, group)
      call('HSET', K.worker .. daemon, slot, settled)
      freed[#freed + 1], grouped_ended = group, grouped_ended + 1
    end
  end
  if following == '' then return 1 end
  goes_on = true
  local head = call('LINDEX', lane, -1)
  local should_end = is_withheld(group) or (head and arrival_of(head) < arrival_of(next_one))
    or not may_run_on(group, next_one, is_limiting() and call('HGET', K.charged, following) or nil, now)
  return should_end and 2 or 1
end

local i = 4
while ARGV[i] do
  local number, fences, elements, told = tonumber(ARGV[i + 7]), {}, {}, {}
  for n = 1, number do
    local from = i + 5 + 3 * n
    fences[n], elements[n], told[n] = ARGV[from], ARGV[from + 1], ARGV[from + 2]
  end
  local group, more = ARGV[i + 1], tonumber(ARGV[i + 4])
  local verdict = settle(ARGV[i], group, ARGV[i + 2], ARGV[i + 3], fences, elements, told)
  verdicts[#verdicts + 1] = verdict
  if more > 0 and verdict == 1 and goes_further() then
    local found = lengthen(group, ARGV[i + 6], tonumber(ARGV[i + 5]), math.min(more, room))
    if found then
      further[#further + 1], further[#further + 2] = #verdicts, found
      room = room - (#found - 1) / 2
    end
  end
  i = i + 8 + 3 * number
end

for n = 1, #ended, 500 do
  call('HDEL', K.tasks, unpack(ended, n, math.min(n + 499, #ended)))
  call('HSET', K.history_new, unpack(lines, 2 * n - 1, math.min(2 * n + 998, #lines)))
end
if #ended > 0 then call('HINCRBY', K.count, 'done', #ended) end
if begun > 0 then call('HINCRBY', K.count, 'queued_grouped', -begun) end
write_counts(false)
if place_freed(freed, now) and ARGV[3] == 'wake' then tell('grouped') end
if goes_on and call('EXISTS', K.paused_all) == 1 then
  for n = 1, #verdicts do verdicts[n] = verdicts[n] > 0 and 2 or 0 end
end
return { 'OK', verdicts, goes_on and call('INCR', K.fence) or 0, further, now }
