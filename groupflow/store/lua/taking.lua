-- Behind what keeps messages and what places their tasks: takes messages in, each as a waiting task or a dead letter,
-- unless it is known already. `take_batch` is all that `enqueue` and `follow` do.

-- Takes in the messages of a list from place `first` on, ten arguments each. Returns what `enqueue.lua` answers.
local function take_in(list, first)
  now = clock()
  if #list >= first then note_first_epoch(now) end
  sequence = next_sequence(now)
  any_renamed = call('EXISTS', K.renamed) == 1
  local taken, crowded, full, starts, buried_of = {}, {}, {}, {}, {}
  local plain, grouped, buried, accepted, superseded, known = 0, 0, 0, 0, 0, 0

  for i = first, #list, 10 do
    local group, id, wanted = list[i + 1], keep(list[i], list[i + 9], list[i + 7])
    if wanted then
      taken[#taken + 1] = { wanted }
    elseif not id then
      taken[#taken + 1], known = 0, known + 1
    else
      taken[#taken + 1] = id == list[i] and 1 or id
      accepted = accepted + 1
      local goes_straight = list[i + 2] == '0' and list[i + 3] == '0' and list[i + 5] == '' and list[i + 8] == ''
        and not delay_ahead(group, now)
      local is_buried, may_start = false, true
      if not goes_straight then
        local message
        message, may_start = detours().take(list, i, id)
        is_buried = message.is_buried
        if message.is_crowded_out then crowded[#crowded + 1] = #taken end
        if message.is_full then full[#full + 1] = #taken end
        if message.has_replaced then superseded = superseded + 1 end
      elseif group ~= '' then
        may_start = enter_lane(digits(sequence) .. '.' .. id, group)
      else
        enter_plain(digits(sequence) .. '.' .. id, sequence, true)
      end
      if may_start then starts[group == '' and 'plain' or 'grouped'] = true end
      if is_buried then
        buried = buried + 1
        if group ~= '' and is_draining() then buried_of[group] = true end
      elseif group == '' then
        plain = plain + 1
      else
        grouped = grouped + 1
      end
      sequence = sequence + 1
    end
  end

  if accepted > 0 then
    call('HSET', K.count, 'sequence', digits(sequence - 1))
    call('HINCRBY', K.count, 'taken', accepted)
    if plain > 0 then call('HINCRBY', K.count, 'queued_plain', plain) end
    if grouped > 0 then call('HINCRBY', K.count, 'queued_grouped', grouped) end
    if buried > 0 then call('HINCRBY', K.count, 'buried', buried) end
  end
  if known > 0 then call('HINCRBY', K.count, 'duplicates', known) end
  for group in pairs(buried_of) do -- it may be drained by that
    if place(group, now) then starts.grouped = true end
  end
  -- The caller claims right behind this, so the script tells only others.
  if (starts.plain or starts.grouped) and (call('ZCARD', K.daemons) > 1 or not call('ZSCORE', K.daemons, ARGV[1])) then
    if starts.plain then tell('plain') end
    if starts.grouped then tell('grouped') end
  end
  local queued = call('HMGET', K.count, 'queued_plain', 'queued_grouped', 'asleep')
  local waiting = (tonumber(queued[1]) or 0) + (tonumber(queued[2]) or 0) - (tonumber(queued[3]) or 0)
  return { waiting - call('ZCARD', K.late), taken, crowded,
    accepted > 0 and sequence - 1 or 0, superseded, full, call('EXISTS', K.outbox_full) }
end

local function take_batch()
  local refusal = other_layout()
  if refusal then
    local bytes, at = laid(ARGV[14] or '-')
    if bytes and is_laid(at, bytes) then call('HDEL', K.tasks, at) end
    return refusal
  end
  if ARGV[6] ~= '' then call('HSET', K.count, 'replies', 1) end
  return take_in(ARGV, 7)
end
