-- Behind the session rules: a run, which is one claim of several tasks of a group. Those behind the first wait in their
-- lane, under its lock. A task with a task state is never of a run: it may be delayed, or a quarantined task, or large.

local MOST_BEGUN = 500 -- tasks that one script adds to runs

-- Made only where a run is, or may begin.
local runs_made
local function runs()
  if runs_made then return runs_made end
  local R = {}
  runs_made = R

  -- Whether a run of a tenant's tasks, nil for none, may go on with a task: no rate or closing holds the starts apart.
  -- A run counts as one of its tenant's tasks at once.
  local function may_run_on(group, entry, tenant, now)
    if not is_limiting() then return true end
    return limits().is_serial(group, entry) and tenants().of(entry) == tenant
      and (not tenant or tenants().is_unpaced(tenant, now))
  end

  -- The next `most` entries of a lane, behind its first `behind`, as a flat list: entry · envelope; as far as
  -- `may_follow` says so.
  local function next_in_lane(group, behind, most, may_follow)
    if most < 1 then return {} end
    local entries, ids, found = call('LRANGE', K.lane .. group, -most - behind, -1 - behind), {}, {}
    for i = #entries, 1, -1 do
      if has_state(entries[i]) or not may_follow(entries[i]) then break end
      ids[#ids + 1] = id_of(entries[i])
    end
    if #ids == 0 then return found end
    local envelopes = call('HMGET', K.tasks, unpack(ids))
    for i = 1, #ids do
      if not envelopes[i] then break end
      found[2 * i - 1], found[2 * i] = entries[#entries - i + 1], envelopes[i]
    end
    return found
  end

  -- The `run` of an envelope's rule, by the caller's table; nil where that has none.
  local function run_of(envelope, sizes)
    local is_sound, facts = pcall(cjson.decode, string.match(envelope, '^[^\n]*'))
    return is_sound and type(facts) == 'table' and sizes[facts[4]] or nil
  end

  -- A group's run reaches as far as `found`, each task under a fence of its own: puts the first fence in front.
  local function reach(group, found)
    local number = #found / 2
    local fence = take_fences(number)
    call('HSET', K.runs, group, digits(fence + number - 1) .. sub(found[2 * number - 1], 1, 16))
    table.insert(found, 1, digits(fence))
  end

  -- Settles what runs have done: the first tasks of each are done, and it goes on with the next one, or ends. Its slot
  -- has begun that one already, so nothing here may stop it: the rest of a run is the slot's, under its group's lock,
  -- though it stands in the lane, until the run ends, or its session.
  --
  -- ARGV tells so many runs from place `start` on, each as: slot · group · fence (16 digits) and entry of the next
  -- task, '' each where it ends · how many more it may have, how many it has behind that one, and the entry of the
  -- last of all of these · how many are done · three of each of those, in order: fence (16 digits) · entry · its line
  -- for the history. 500 tasks at most, except in the last run.
  --
  -- Returns the place behind them, and adds a verdict a run to `verdicts`: 0 (it is lost), 1 (accepted, also a repeat),
  -- 2 (the same, and it should end soon: an operator paused or limited the group, or an older task stands in front of
  -- its next one). Also whether any goes on, those that have more now as a flat list (its place, and what it has more:
  -- a fence, then entry and envelope of each in turn), and the groups to place.
  function R.settle(daemon, start, number_runs, verdicts, now)
    local at, freed, lines, ended, goes_on = digits(now), {}, {}, {}, false
    local begun, further, room = 0, {}, MOST_BEGUN

    -- Takes entries out of a lane: nearly always its next ones, in that order. Returns the missing ones, as a set, and
    -- how many it took.
    local function take_out(lane, entries)
      local missing, popped = {}, call('RPOP', lane, #entries) or {}
      local is_same = #popped == #entries
      for i = 1, #popped do is_same = is_same and popped[i] == entries[i] end
      if is_same then return missing, #entries end
      for i = #popped, 1, -1 do call('RPUSH', lane, popped[i]) end
      local taken = 0
      for _, entry in ipairs(entries) do
        if call('LREM', lane, -1, entry) == 1 then taken = taken + 1 else missing[entry] = true end
      end
      return missing, taken
    end

    -- Which of the fences to settle next; one behind the last where all are; nil where the run is lost.
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

    -- Whether a run may have what stands behind it in its lane, as nothing else waits.
    local may_go_further
    local function goes_further()
      if may_go_further == nil then
        may_go_further = not is_limiting() and not is_beside_others() and call('EXISTS', K.parked, K.paused) == 0
      end
      return may_go_further
    end

    -- What stands behind a run becomes its own, too. A caller that didn't hear of it names the same last task again.
    -- Where the lane has another task in that place, the run gets no more.
    local function lengthen(group, last, has, more)
      if has > 0 and call('LINDEX', K.lane .. group, -has) ~= last then return nil end
      local found = next_in_lane(group, has, more, function() return true end)
      if #found == 0 or sequence_of(found[1]) < sequence_of(last) then return nil end
      reach(group, found)
      return found
    end

    local function settle(slot, group, following, next_one, fences, entries, told)
      local checkpoint = call('HGET', K.worker .. daemon, slot)
      local first = place_in(checkpoint, fences, following)
      if not first then return 0, false end
      local lane, last = K.lane .. group, #fences
      if first <= last then
        local leaving = {}
        for i = first + 1, last do leaving[#leaving + 1] = entries[i] end
        if following ~= '' then leaving[#leaving + 1] = next_one end
        local missing, taken = {}, 0
        if #leaving > 0 then missing, taken = take_out(lane, leaving) end
        begun = begun + taken
        if is_limiting() then tenants().run_on(fences[first], taken, now) end
        for i = first, last do
          if not missing[entries[i]] then -- else an operator dropped it meanwhile
            ended[#ended + 1] = id_of(entries[i])
            lines[#lines + 1], lines[#lines + 2] = id_of(entries[i]), at .. told[i]
            if has_state(entries[i]) then end_state(id_of(entries[i])) end
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
      if following == '' or settled_before(checkpoint) == following then return 1, false end
      goes_on = true
      local head = call('LINDEX', lane, -1)
      local should_end = is_withheld(group) or (head and sequence_of(head) < sequence_of(next_one))
        or not may_run_on(group, next_one, is_limiting() and call('HGET', K.charged, following) or nil, now)
      return should_end and 2 or 1, not should_end
    end

    local i = start
    for place = 1, number_runs do
      local number, fences, entries, told = tonumber(ARGV[i + 7]), {}, {}, {}
      for n = 1, number do
        local from = i + 5 + 3 * n
        fences[n], entries[n], told[n] = ARGV[from], ARGV[from + 1], ARGV[from + 2]
      end
      local group, more = ARGV[i + 1], tonumber(ARGV[i + 4])
      local verdict, may_reach = settle(ARGV[i], group, ARGV[i + 2], ARGV[i + 3], fences, entries, told)
      verdicts[place] = verdict
      if more > 0 and may_reach and goes_further() then
        local found = lengthen(group, ARGV[i + 6], tonumber(ARGV[i + 5]), math.min(more, room))
        if found then
          further[#further + 1], further[#further + 2] = place, found
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
    if goes_on and call('EXISTS', K.paused_all) == 1 then
      for place = 1, number_runs do verdicts[place] = verdicts[place] > 0 and 2 or 0 end
    end
    return i, goes_on, further, freed
  end

  -- Begins runs, for the claims behind `first` in the rows, of what stands behind them, as far as their rules let them:
  -- the first one's fence, then entry and envelope of each in turn. The slot goes on with them, one after another,
  -- and says so later (`R.settle`). They stay in the lane, where the lock keeps them for it; the key `runs` says how
  -- far that reaches.
  function R.begin(rows, first, sizes, now)
    local room = MOST_BEGUN
    for at = first, #rows - 7, 7 do
      local entry, group = rows[at + 3], rows[at + 4]
      local run = not has_state(entry) and run_of(rows[at + 5], sizes)
      local tenant = run and is_limiting() and tenants().of(entry) or nil
      local function may_follow(each) return may_run_on(group, each, tenant, now) end
      if run and may_follow(entry) then
        local found = next_in_lane(group, 0, math.min(run - 1, room), may_follow)
        local number = #found / 2
        if number > 0 then
          reach(group, found)
          rows[at + 7] = found
          room = room - number
          if room <= 0 then return end
        end
      end
    end
  end
  return R
end
