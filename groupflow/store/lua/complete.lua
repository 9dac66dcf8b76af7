#!lua flags=allow-oom
-- complete: the tasks are done. Each leaves the store but for its line in the history, and its
-- group goes on.
--
-- KEYS[1]  what all keys of the partition begin with
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
for n = 1, (#ARGV - 3) / 5 do slots[n] = ARGV[5 * n - 1] end
local checkpoints = call('HMGET', K.worker .. daemon, unpack(slots))

local verdicts, settled, ended, lines, gone, freed, fences, owners, lives = {}, {}, {}, {}, {}, {}, {}, {}, {}
local done, free, lock = 0, 0, K.lock
for n = 1, #slots do
  local i = 5 * n - 1
  local fence, element, group = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local claim = state_of(checkpoints[n], fence)
  if claim == 'live' then
    local id, pair = id_of(element), 2 * done
    done = done + 1
    settled[pair + 1], settled[pair + 2] = slots[n], 'S' .. fence
    lines[pair + 1], lines[pair + 2] = id, at .. ARGV[i + 4]
    ended[done], fences[done], owners[done] = id, fence, group
    if has_life(element) then
      put_down(id)
      lives[#lives + 1] = K.life .. id
    end
    if group ~= '' then
      free = free + 1
      gone[free], freed[free] = lock .. group, group
    end
    if mark then
      unmark_ended(daemon, fence)
    end
  end
  verdicts[n] = claim == 'lost' and 0 or 1
end
plain_ended, grouped_ended = done - free, free

if done > 0 then
  call('HDEL', K.tasks, unpack(ended))
  if #lives > 0 then call('DEL', unpack(lives)) end
  if is_limiting() then
    for i = 1, done do unlock(owners[i], fences[i], now) end
  elseif free > 0 then
    call('DEL', unpack(gone))
  end
  call('HSET', K.worker .. daemon, unpack(settled))
  count_held(daemon, -done)
  call('HSET', K.history_new, unpack(lines))
  call('HINCRBY', K.count, 'done', done)
  if place_freed(freed, now) and ARGV[3] == 'wake' then tell('grouped') end
end
write_counts(false)
return { 'OK', verdicts }
