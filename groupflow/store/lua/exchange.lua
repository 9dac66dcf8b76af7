#!lua flags=allow-oom
-- exchange: what has ended in a pool is settled, then its idle slots get their next claims. What is done leaves the
-- store, except its line in the history. What goes back unfinished (the daemon stops, or gave up its lease) is the next
-- of its group again, or ends if it is to be cancelled. Each group goes on, or its run does. A slot gets the head of a
-- ready group, the best group first, under that group's lock, or the plain task with the smallest order_time; or one
-- slot gets a quarantined task, where the daemon runs none. A slot that holds a claim already gets it again, so a lost
-- reply costs nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 the pool: 'plain' or 'grouped' · 4 how many tasks are done · 5 how many go back
--          · 6 by rule, how many tasks of a group may be run under one claim (JSON), '' where that is one
--          · 7 how many runs are told of · 8 how many of the idle slots no worker waits for: a task whose type has a
--          limit is for a worker that waits, and holds back what is behind it · 9 'told' where two values follow on each
--          line for the history: an entry for the outbox (`outbox.lua`), and the task's result, '' each for none
--          · 10 of each task that is done, in the order in which they follow, its kind: two bytes, each below 128, count up
--          the kinds from 0 · 11 how many kinds there are · of each: its field in `tally` · how many tasks
--          · then these: slot · group · fence (16 digits) and entry of its next task, '' each where it ends
--          · how many are done · three of each of those, in order: fence (16 digits) · entry · its
--          line for the history; five of each that is done: slot · fence (16 digits) · entry · group · its line for
--          the history; four of each that goes back: slot · fence · entry · group; and the idle slots; 500 of each at
--          most, and 500 tasks of runs, except in the last run
-- returns  { state, a verdict for each of these: 1 (accepted, also a repeat), 0 (the fence is stale), or of a run 2
--          (accepted, and it should end soon: an operator paused or limited the group, or an older task stands in
--          front of its next one), or of what goes back 5 (accepted, and cancelled) or 6 (accepted, and superseded);
--          a flat list of seven a claim:
--          slot · fence (16 digits) · entry · group · envelope and body, or how many bytes are to be fetched (see
--          `claiming.lua`) · task state as a flat list, or '' · the rest of its run (see `ordinary.lua`), '' where it
--          is none; Redis's clock (µs); 1 where the daemon runs a quarantined task, in either pool, else 0; a fence of
--          no claim, by which it is known that this server lost writes if it knows a smaller one, or 0; 1 where the
--          next task is for a worker that waits, else 0 }
local daemon, pool = ARGV[1], ARGV[3]
local number_runs, number_done, number_back = tonumber(ARGV[7]), tonumber(ARGV[4]), tonumber(ARGV[5])
local more = ARGV[9] == 'told' and 2 or 0
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, {}, 0, 0, 0, 0 } end

-- The claims that are told of, and the place of the first idle slot. What goes back has no line.
local function read_claims()
  local claims, i, before = {}, 12 + 2 * ARGV[11], 0
  for _ = 1, number_runs do
    local fences, entries, lines, told, results = {}, {}, {}, {}, {}
    local from = i + 5
    for n = 1, tonumber(ARGV[i + 4]) do
      fences[n], entries[n], lines[n] = ARGV[from], ARGV[from + 1], ARGV[from + 2]
      if more > 0 then told[n], results[n] = ARGV[from + 3], ARGV[from + 4] end
      from = from + 3 + more
    end
    claims[#claims + 1] = {
      slot = ARGV[i], group = ARGV[i + 1], following = ARGV[i + 2], next_one = ARGV[i + 3],
      fences = fences, entries = entries, lines = lines, told = told, results = results, before = before,
    }
    i, before = from, before + #entries
  end
  for n = 1, number_done + number_back do
    local is_done = n <= number_done
    claims[#claims + 1] = {
      slot = ARGV[i], group = ARGV[i + 3], following = '',
      fences = { ARGV[i + 1] }, entries = { ARGV[i + 2] }, lines = { is_done and ARGV[i + 4] or nil },
      told = { ARGV[i + 5] }, results = { ARGV[i + 6] }, before = before,
    }
    before = before + 1
    i = i + (is_done and 5 + more or 4)
  end
  return claims, i
end

local now = clock()
local claims, from_slots = read_claims()
local at, goes_on, begun, plain_ended = digits(now), false, 0, 0
local checkpoints, written = {}, {} -- by slot; and those that change
local ended, lately, lines, over, locks, freed, back, told, results = {}, {}, {}, {}, {}, {}, {}, {}, {}
local tallied = {} -- by the place of a kind's field, how many are done

-- Which of a claim's fences to settle next; one behind the last where all are; nil where the claim is lost.
local function place_in(checkpoint, fences, following)
  if not checkpoint then return nil end
  if byte(checkpoint) == LIVE then
    local fence = sub(checkpoint, 2, 17)
    for i = 1, #fences do
      if fences[i] == fence then return i end
    end
    if fence == following then return #fences + 1 end
  end
  -- It has ended: with the last of these, or with the next one, settled behind this.
  local ended_with = following == '' and fences[#fences] or following
  return settled_before(checkpoint) == ended_with and #fences + 1 or nil
end

-- Takes entries out of a lane: its next ones, in that order, unless older tasks came back in front of them.
local function take_out(lane, entries)
  local popped, is_same = call('RPOP', lane, #entries) or {}, true
  for i = 1, #entries do is_same = is_same and popped[i] == entries[i] end
  if is_same then return end
  for i = #popped, 1, -1 do call('RPUSH', lane, popped[i]) end
  for _, entry in ipairs(entries) do call('LREM', lane, -1, entry) end
end

-- From the place `first` on, a claim's tasks are done: those behind the first one leave the lane only now.
local function end_tasks(claim, first)
  if #claim.entries > first or claim.following ~= '' then
    local leaving = { unpack(claim.entries, first + 1) }
    if claim.following ~= '' then leaving[#leaving + 1] = claim.next_one end
    take_out(K.lane .. claim.group, leaving)
    begun = begun + #leaving
    if is_limiting() then tenants().run_on(claim.fences[first], #leaving, now) end
  end
  for i = first, #claim.entries do
    local id, n = id_of(claim.entries[i]), #ended + 1
    count_end('done', id, claim.group, now)
    ended[n], lines[2 * n - 1], lines[2 * n] = id, id, at .. claim.lines[i]
    local high, low = byte(ARGV[10], 2 * (claim.before + i) - 1, 2 * (claim.before + i))
    local kind = 12 + 2 * (128 * high + low)
    tallied[kind] = (tallied[kind] or 0) + 1
    if claim.group ~= '' then lately[#lately + 1] = id end
    if more > 0 and claim.told[i] ~= '' then told[#told + 1] = claim.told[i] end
    if more > 0 and claim.results[i] ~= '' then results[#results + 1], results[#results + 2] = id, claim.results[i] end
    if has_state(claim.entries[i]) then end_state(id) else forget_cancel(id) end
  end
end

-- Whether a run of a tenant's tasks, nil for none, may go on with a task: no rate or closing holds the starts apart. A
-- run counts as one of its tenant's tasks at once.
local function may_run_on(group, entry, tenant)
  if not is_limiting() then return true end
  if is_capping() and caps().of(entry) then return false end -- it is claimed alone
  return limits().is_serial(group, entry) and tenants().of(entry) == tenant
    and (not tenant or tenants().is_unpaced(tenant, now))
end

-- For `begin_runs`.
local function may_run(group, first)
  local tenant = is_limiting() and tenants().of(first) or nil
  local function may_follow(entry) return not cancel_of(id_of(entry)) and may_run_on(group, entry, tenant) end
  return may_follow(first) and may_follow
end

-- Settles a claim: the first of its tasks are done, or its one task goes back. It ends, or goes on with the next one.
-- The slot has begun that already, so nothing here may stop it: the rest of a run is the slot's, under its group's lock,
-- though it stands in the lane, until the run ends, or its session. Returns the verdict.
local function settle(claim)
  local slot, group, fences, following = claim.slot, claim.group, claim.fences, claim.following
  local checkpoint = checkpoints[slot]
  local first = place_in(checkpoint, fences, following)
  if not first then return 0 end
  if fences[first] then
    local settled = 'S' .. fences[#fences]
    if claim.lines[1] then end_tasks(claim, first) end
    if following ~= '' then
      if is_limiting() then tenants().recharge(fences[first], following) end
      local left = is_limiting() and is_capping() and caps().recharge(fences[first], following, claim.next_one)
      if left then caps().turn(left, now) end
      call('SET', K.lock .. group, following .. ' ' .. daemon .. ' ' .. slot)
      settled = live(following, settled, at, claim.next_one, group)
    else
      if is_limiting() then unlock(group, fences[first], now) end
      end_quarantine_of(daemon, fences[first])
      if group ~= '' then locks[#locks + 1] = K.lock .. group end
      if claim.next_one or not claim.lines[1] then over[#over + 1] = group end -- a run, or what may have been one
      if not claim.lines[1] then
        back[#back + 1] = claim
      elseif group ~= '' then
        freed[#freed + 1] = group
      else
        plain_ended = plain_ended + 1
      end
    end
    checkpoints[slot] = settled
    written[#written + 1], written[#written + 2] = slot, settled
  end
  if following == '' or settled_before(checkpoint) == following then return 1 end
  goes_on = true
  local head, tenant = call('LINDEX', K.lane .. group, -1), is_limiting() and call('HGET', K.charged, following)
  local should_end = is_withheld(group) or (head and sequence_of(head) < sequence_of(claim.next_one))
    or not may_run_on(group, claim.next_one, tenant or nil)
  return should_end and 2 or 1
end

-- Places groups whose locks went in this very script. While they ran they stood in neither index, so one without a head
-- is idle already, and those that may be claimed enter `ready` by one command. (With limits, several tasks of a group
-- may run, and it may stand in one; so each is placed by itself.) Returns whether any may be claimed.
local function place_freed(groups, now)
  local ready, last, may_claim = {}, 0, false
  local turn, lane = ORDER == 'fair' and digits(now), K.lane
  for i = 1, #groups do
    local group = groups[i]
    local head = call('LINDEX', lane .. group, -1)
    if head and (is_limiting() or has_state(head) or is_withheld(group)) then
      if place_unlocked(group, now) then may_claim = true end
    elseif head then
      ready[last + 1], ready[last + 2] = turn or sub(head, 1, 16), group
      last = last + 2
    elseif is_draining() and place_unlocked(group, now) then
      may_claim = true
    end
  end
  if last > 0 then call('ZADD', K.ready, unpack(ready)) end
  return may_claim or last > 0
end

local verdicts, slots = {}, {}
for n = 1, #claims do
  claims[n].number, slots[n] = n, claims[n].slot
end
local known = #slots > 0 and call('HMGET', K.worker .. daemon, unpack(slots))
for n = 1, #slots do checkpoints[slots[n]] = known[n] end
for n = 1, #claims do verdicts[n] = settle(claims[n]) end
if goes_on and call('EXISTS', K.paused_all) == 1 then
  for n = 1, number_runs do verdicts[n] = verdicts[n] > 0 and 2 or 0 end
end
if #written > 0 then call('HSET', K.worker .. daemon, unpack(written)) end
if #over > 0 then call('HDEL', K.runs, unpack(over)) end
if #locks > 0 and not is_limiting() then call('DEL', unpack(locks)) end
for n = 1, #ended, 500 do
  call('HDEL', K.tasks, unpack(ended, n, math.min(n + 499, #ended)))
  call('HSET', K.history_new, unpack(lines, 2 * n - 1, math.min(2 * n + 998, #lines)))
end
if #ended > 0 then call('HINCRBY', K.count, 'done', #ended) end
for kind, number in pairs(tallied) do call('HINCRBY', K.tally, ARGV[kind], number) end
if #told > 0 then put_out(told, now) end
if #results > 0 then keep_results(results) end
keep_lately(lately)
if begun > 0 then call('HINCRBY', K.count, 'queued_grouped', -begun) end
if plain_ended > 0 then count_ends('', plain_ended) end
if #freed > 0 then count_ends(freed[1], #freed) end
count_held(daemon, -plain_ended - #freed - #back)

-- The oldest is put back last, so that it stands first.
table.sort(back, function(a, b) return a.entries[1] > b.entries[1] end)
for _, claim in ipairs(back) do
  local verdict = end_if_cancelled(id_of(claim.entries[1]), claim.group, now)
  if verdict then
    verdicts[claim.number] = verdict
    if claim.group ~= '' then freed[#freed + 1] = claim.group end
  else
    put_back(claim.entries[1], claim.group, now)
  end
  count_ends(claim.group, 1, not verdict)
  wake_for(claim.group)
  -- A puller may not have heard that its limit gave this one back: nothing that it says of it holds.
  if pool_of(daemon) then call('HDEL', K.worker .. daemon, claim.slot) end
end

-- Behind all that goes back: only then does the lane tell whether a group is drained.
local may_claim = place_freed(freed, now)

local idle, before = {}, nil
if ARGV[from_slots] then idle, before = split_slots(daemon, { unpack(ARGV, from_slots) }, now) end
-- What was freed is for these slots, except a quarantined task beside another one. Other daemons hear of what is left.
if may_claim and (quarantine or #idle < #claims) then tell('grouped') end
local is_kept = false
if #idle > 0 then
  local told_before = last
  is_kept = give_claims(daemon, pool, idle, before, now, tonumber(ARGV[8]))
  if pool == 'grouped' and ARGV[6] ~= '' then begin_runs(rows, told_before, ARGV[6], may_run) end
end
-- What is kept may be what was freed, or stands in front of that; and a quarantined task is claimed alone.
if may_claim and (is_kept or quarantine) then tell('grouped') end
return {
  'OK', verdicts, rows, now, quarantine and 1 or 0, goes_on and call('INCR', K.fence) or 0, is_kept and 1 or 0,
}
