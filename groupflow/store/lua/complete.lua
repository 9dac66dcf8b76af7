#!lua flags=allow-oom
-- complete: the tasks are done. Each leaves the store but for its line in the history, and its
-- group goes on.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3 'wake' where the caller claims for fewer slots right behind it,
--          and others have to hear that a group is free · then five a claim, 500 claims at most:
--          slot · fence (16 digits) · element · group · its line for the history
-- returns  { state, one 1 (accepted, also a repeat) or 0 (the fence is stale) a claim }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now = clock()
local at = digits(now)
local slots = {}
for i = 4, #ARGV, 5 do slots[#slots + 1] = ARGV[i] end
local checkpoints = call('HMGET', K.worker .. daemon, unpack(slots))

local verdicts, settled, ended, gone, lines, freed = {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 5 do
  local fence, group = ARGV[i + 1], ARGV[i + 3]
  local claim = state_of(checkpoints[#verdicts + 1], fence)
  if claim == 'live' then
    local id = id_of(ARGV[i + 2])
    settled[#settled + 1] = ARGV[i]
    settled[#settled + 1] = 'S' .. fence
    ended[#ended + 1] = id
    if has_life(ARGV[i + 2]) then gone[#gone + 1] = K.life .. id end
    lines[#lines + 1] = id
    lines[#lines + 1] = at .. ARGV[i + 4]
    if group ~= '' then
      gone[#gone + 1] = K.lock .. group
      freed[#freed + 1] = group
    end
    count_end(group)
    unmark_ended(daemon, fence)
  end
  verdicts[#verdicts + 1] = claim == 'lost' and 0 or 1
end

if #settled > 0 then
  call('HDEL', K.tasks, unpack(ended))
  if #gone > 0 then call('DEL', unpack(gone)) end
  call('HSET', K.worker .. daemon, unpack(settled))
  call('HSET', K.history_new, unpack(lines))
  call('HINCRBY', K.count, 'done', #settled / 2)
  if place_freed(freed, now) and ARGV[3] == 'wake' then wake() end
end
write_counts(false)
return { 'OK', verdicts }
