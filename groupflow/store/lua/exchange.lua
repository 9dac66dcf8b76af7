#!lua flags=allow-oom
-- exchange: what has ended in a pool is settled, then its idle slots get their next claims. What is done leaves the
-- store, except its line in the history. What goes back unfinished (the daemon stops, or gave up its lease) is the next
-- of its group again. Each group goes on, or its run does. A slot gets the head of a ready group, the best group first,
-- under that group's lock, or the plain task with the smallest order_time; or one slot gets a quarantined task, where
-- the daemon runs none. A slot that holds a claim already gets it again, so a lost reply costs nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 the pool: 'plain' or 'grouped' · 4 how many tasks are done · 5 how many go back
--          · 6 by rule, how many tasks of a group may be run under one claim (JSON), '' where that is one
--          · 7 how many runs are told of · then these (see `R.settle`); five of each that is done: slot · fence
--          (16 digits) · entry · group · its line for the history; four of each that goes back: slot · fence ·
--          entry · group; and the idle slots; 500 of each at most
-- returns  { state, a verdict for each of these (of a run: see `R.settle`): 1 (accepted, also a repeat) or 0 (the
--          fence is stale); a flat list of seven a claim: slot · fence (16 digits) · entry · group · envelope and
--          body, or how many bytes are to be fetched (see `claiming.lua`) · task state as a flat list, or '' ·
--          the rest of its run (see `ordinary.lua`), '' where it is none; Redis's clock (µs); 1 where the daemon runs a
--          quarantined task, in either pool, else 0; a fence of no claim, by which it is known that this server lost
--          writes if it knows a smaller one, or 0 }
local daemon, pool, number_done, number_back = ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local number_runs = tonumber(ARGV[7])
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, {}, 0, 0, 0 } end
local now, verdicts, i, goes_on, freed = clock(), {}, 8, false, {}
if number_runs > 0 then
  i, goes_on, freed = runs().settle(daemon, i, number_runs, verdicts, now)
end
local from_back = i + 5 * number_done
local from_slots = from_back + 4 * number_back

if number_done > 0 then
  local at, slots = digits(now), {}
  for n = 1, number_done do slots[n] = ARGV[i + 5 * n - 5] end
  local checkpoints = call('HMGET', K.worker .. daemon, unpack(slots))
  local settled, ended, lines, gone, fences, owners, lives = {}, {}, {}, {}, {}, {}, {}
  local done, free, lock = 0, 0, K.lock
  for n = 1, number_done do
    local fence, entry, group = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local claim = state_of(checkpoints[n], fence)
    if claim == 'live' then
      local id, pair = id_of(entry), 2 * done
      done = done + 1
      settled[pair + 1], settled[pair + 2] = slots[n], 'S' .. fence
      lines[pair + 1], lines[pair + 2] = id, at .. ARGV[i + 4]
      ended[done], fences[done], owners[done] = id, fence, group
      if has_state(entry) then
        put_down(id)
        lives[#lives + 1] = K.task_state .. id
      end
      if group ~= '' then
        free = free + 1
        gone[free], freed[#freed + 1] = lock .. group, group
      end
      if quarantine then
        end_quarantine_of(daemon, fence)
      end
    end
    verdicts[number_runs + n] = claim == 'lost' and 0 or 1
    i = i + 5
  end
  if done > 0 then
    call('HDEL', K.tasks, unpack(ended))
    if #lives > 0 then call('DEL', unpack(lives)) end
    if is_limiting() then
      for n = 1, done do unlock(owners[n], fences[n], now) end
    elseif free > 0 then
      call('DEL', unpack(gone))
    end
    call('HSET', K.worker .. daemon, unpack(settled))
    count_held(daemon, -done)
    call('HSET', K.history_new, unpack(lines))
    call('HINCRBY', K.count, 'done', done)
    plain_ended, grouped_ended = done - free, free
    write_counts(false)
  end
end

local may_claim = place_freed(freed, now)

if number_back > 0 then
  local back = {}
  for n = from_back, from_slots - 1, 4 do
    local entry, group = ARGV[n + 2], ARGV[n + 3]
    local claim = end_claim(daemon, ARGV[n], ARGV[n + 1], group)
    if claim == 'live' then
      back[#back + 1] = { entry, group }
      -- A puller may not have heard that its limit gave this one back: nothing that it says of it holds.
      if pool_of(daemon) then call('HDEL', K.worker .. daemon, ARGV[n]) end
      count_end(group)
    end
    verdicts[#verdicts + 1] = claim == 'lost' and 0 or 1
  end
  -- The oldest is put back last, so that it stands first.
  table.sort(back, function(a, b) return a[1] > b[1] end)
  for _, each in ipairs(back) do put_back(each[1], each[2], now) end
  if plain_ended > 0 then tell('plain') end
  if grouped_ended > 0 then tell('grouped') end
  write_counts(true)
end

-- The answer, with these claims.
local function answer(rows)
  return { 'OK', verdicts, rows, now, quarantine and 1 or 0, goes_on and call('INCR', K.fence) or 0 }
end

local rows, idle, before = {}, {}, nil
if ARGV[from_slots] then rows, idle, before = split_slots(daemon, { unpack(ARGV, from_slots) }, now) end
-- What was freed is for these slots, except a quarantined task beside another one. Other daemons hear of what is left.
if may_claim and (quarantine or #idle < number_runs + number_done + number_back) then tell('grouped') end
if #idle == 0 then return answer(rows) end
local is_grouped, told_before = pool == 'grouped', last
local quarantined = take_quarantined(is_grouped and FROM.quarantined_groups or FROM.quarantined_plain)
local take = is_grouped and claim_groups or claim_plain
local claims, are_quarantined = take(daemon, idle, quarantined or nil, now)
local number = #claims.entries
if number > 0 then
  local passed = give(daemon, claims, before, rows, now)
  if is_grouped and ARGV[6] ~= '' and not are_quarantined then
    begin_runs(rows, told_before, ARGV[6], function(group, entry) return runs().follows(group, entry, now) end)
  end
  for _, at in ipairs(passed) do
    local group = claims.groups[at]
    unlock(group, claims.fences[at], now)
    if group ~= '' then place_unlocked(group, now) end
  end
  if are_quarantined and number > #passed then note_quarantined(daemon, claims, now) end
  count_claims(pool, number, #passed)
end
return answer(rows)
