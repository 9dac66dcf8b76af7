-- Behind the session rules: a run, which is one claim of several tasks of a group, goes on and ends. `begin_runs` begins
-- it.

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

  -- For `begin_runs`.
  function R.follows(group, first, now)
    local tenant = is_limiting() and tenants().of(first) or nil
    local function may_follow(entry) return may_run_on(group, entry, tenant, now) end
    return may_follow(first) and may_follow
  end

  -- Settles what runs have done: the first tasks of each are done, and it goes on with the next one, or ends. Its slot
  -- has begun that one already, so nothing here may stop it: the rest of a run is the slot's, under its group's lock,
  -- though it stands in the lane, until the run ends, or its session.
  --
  -- ARGV tells so many runs from place `start` on, each as: slot · group · fence (16 digits) and entry of the next
  -- task, '' each where it ends · how many are done · three of each of those, in order: fence (16 digits) · entry · its
  -- line for the history. 500 tasks at most, except in the last run.
  --
  -- Returns the place behind them, and adds a verdict a run to `verdicts`: 0 (it is lost), 1 (accepted, also a repeat),
  -- 2 (the same, and it should end soon: an operator paused or limited the group, or an older task stands in front of
  -- its next one). Also whether any goes on, and the groups to place.
  function R.settle(daemon, start, number_runs, verdicts, now)
    local at, freed, lines, ended, goes_on = digits(now), {}, {}, {}, false
    local begun = 0

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

    local function settle(slot, group, following, next_one, fences, entries, told)
      local checkpoint = call('HGET', K.worker .. daemon, slot)
      local first = place_in(checkpoint, fences, following)
      if not first then return 0 end
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
      if following == '' or settled_before(checkpoint) == following then return 1 end
      goes_on = true
      local head = call('LINDEX', lane, -1)
      local should_end = is_withheld(group) or (head and sequence_of(head) < sequence_of(next_one))
        or not may_run_on(group, next_one, is_limiting() and call('HGET', K.charged, following) or nil, now)
      return should_end and 2 or 1
    end

    local i = start
    for place = 1, number_runs do
      local number, fences, entries, told = tonumber(ARGV[i + 4]), {}, {}, {}
      for n = 1, number do
        local from = i + 2 + 3 * n
        fences[n], entries[n], told[n] = ARGV[from], ARGV[from + 1], ARGV[from + 2]
      end
      verdicts[place] = settle(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], fences, entries, told)
      i = i + 5 + 3 * number
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
    return i, goes_on, freed
  end
  return R
end
