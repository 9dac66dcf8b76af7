#!lua flags=allow-oom
-- hand_on: a task is done, and its slot goes on with the next one of its group, under the same lock: if
-- that one is still the head, and its group would be the first to be claimed now. If not, the group goes
-- its ordinary way, and the slot holds nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence (16 digits) · 5 element · 6 group · 7 its line for the
--          history · 8 element of the next one, which has no life · 9 how many behind that one are told
-- returns  { state, 1 (accepted, also a repeat) or 0 (the fence is stale), the fence (16 digits) of the
--          claim of the next one, '' where there is none, Redis's clock (µs), a flat list of those behind it:
--          element · envelope and body; 1 where `hop` would have done, else 0 }
local daemon, slot, fence, element, group, next_one = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, 0, '', 0, {}, 0 } end
local now, is_alone = clock(), not is_beside_others()
local checkpoint = call('HGET', K.worker .. daemon, slot)
local claim = state_of(checkpoint, fence)
if claim == 'lost' then return { 'OK', 0, '', now, {}, 0 } end
if claim == 'settled' then
  local held = claim_of(checkpoint)
  return { 'OK', 1, held and held.element == next_one and held.fence or '', now, {}, 0 }
end

-- Whether no limit stands before the next one: there is none for it, nobody has closed the group, and no other
-- of it runs (a reload may have taken away a limit under which some do).
local function is_unheld()
  return is_unlimited(group, next_one) and not call('ZSCORE', K.closed, 'g' .. group) and limits().running(group) == 1
end

-- Whether the group would be the one that the next claim is given.
local function goes_first()
  if not is_alone then
    if is_limiting() and not is_unheld() then return false end
    if call('EXISTS', K.paused_all, K.recovering) > 0 or is_withheld(group) then return false end
    if not mark and call('EXISTS', K.suspect_groups) == 1 then return false end
    local best = call('ZRANGE', K.ready, 0, 0, 'WITHSCORES')
    if best[1] and (ORDER == 'fair' or tonumber(best[2]) < arrival_of(next_one)) then return false end
  end
  return tonumber(call('ZSCORE', K.daemons, daemon) or 0) >= now
end

call('HDEL', K.tasks, id_of(element))
if has_life(element) then end_life(id_of(element)) end
call('HSET', K.history_new, id_of(element), digits(now) .. ARGV[7])
call('HINCRBY', K.count, 'done', 1)
if mark then unmark_ended(daemon, fence) end

local lane, following = K.lane .. group, ''
if call('LINDEX', lane, -1) == next_one and goes_first() then
  call('RPOP', lane)
  if is_limiting() then tenants().let_go(fence, now) end -- it was charged by hand, and nobody is any more
  following = digits(call('INCR', K.fence))
  call('SET', K.lock .. group, following .. ' ' .. daemon .. ' ' .. slot)
  call('HSET', K.worker .. daemon, slot, live(following, 'S' .. fence, digits(now), next_one, group))
  call('HINCRBY', K.count, 'queued_grouped', -1)
else
  unlock(group, fence, now)
  call('HSET', K.worker .. daemon, slot, 'S' .. fence)
  call('HINCRBY', K.count, 'running_grouped', -1)
  if place_freed({ group }, now) then wake_for(group) end
end
local function is_next(each) return is_unlimited(group, each) end
local told = following ~= '' and tonumber(ARGV[9]) > 0 and next_in_lane(group, 0, tonumber(ARGV[9]), is_next) or {}
return { 'OK', 1, following, now, told, (is_alone and not mark) and 1 or 0 }
